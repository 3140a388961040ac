"""Weights of the original code of the methods, under the names of this library.

Each module has a function `load_original_weights`, which the method's package in the zoo exports.
Files are opened without running code from them (`weights_only=True`, `allow_pickle=False`).

| module | original code | policies |
|---|---|---|
| `am` | wouterkool/attention-learn-to-route | Attention Model |
| `pomo` | yd-kwon/POMO | Attention Model with POMO's settings |
| `mtvrp` | FeiLiu36/MTNCO, RoyalSkye/Routing-MVMoE | MTPOMO, MVMoE |
| `matnet` | yd-kwon/MatNet | MatNet for ATSP and FFSP |
| `deepaco`, `gfacs` | henry-yeh/DeepACO, ai4co/gfacs | weights of edges |
| `glop` | henry-yeh/GLOP | revisers |
| `dact`, `n2s`, `neuopt` | yining043/VRP-DACT, PDP-N2S, NeuOpt | improvement |

`files` reads files and fills policies; `renaming` and `edge_gnn` hold what several methods share.
"""
