"""Where the names of the published package are: the one table of moved and missing import paths.

Only what differs is listed: a published name that is at its published path needs no entry. Names of
one module are in one string; `Old=New` means that the name changed as well.
"""

from __future__ import annotations

_COMPAT = "rl4co.compat"
_POLICIES = "rl4co.models.policies"
_RL = "rl4co.models.rl"
_ZOO = "rl4co.models.zoo"
_EMBEDDINGS = "rl4co.models.embeddings"

_CONSTRUCTIVE = {
    f"{_POLICIES}.modules": "ConstructiveEncoder ConstructiveDecoder NoEncoder",
    f"{_POLICIES}.constructive": "ConstructivePolicy",
}
_AUTOREGRESSIVE = {
    f"{_POLICIES}.autoregressive": "AutoregressiveEncoder AutoregressiveDecoder "
    "AutoregressivePolicy"
}
_NONAUTOREGRESSIVE = {
    f"{_POLICIES}.nonautoregressive": "NonAutoregressiveEncoder NonAutoregressiveDecoder "
    "NonAutoregressivePolicy"
}
_IMPROVEMENT = {
    f"{_POLICIES}.improvement": "ImprovementEncoder ImprovementDecoder ImprovementPolicy"
}
_TRANSDUCTIVE = {f"{_RL}.transductive": "TransductiveModel"}
_INSTANTIATE = "rl4co.tasks.instantiate"

_RECIPES = {
    "rl4co.data.recipes": "DISTRIBUTIONS_PER_PROBLEM generate_tsp_data generate_vrp_data "
    "generate_pdp_data generate_op_data generate_pctsp_data generate_mdpp_data generate_atsp_data"
}
_DATA_FILES = "check_extension load_solomon_instance load_solomon_solution"
_ENV_BASES = {
    "rl4co.envs.base": "RL4COEnvBase",
    "rl4co.envs.improvement": "ImprovementEnvBase",
}
_GENERATORS = {"rl4co.envs.distributions": "get_sampler", "rl4co.envs.generator": "Generator"}

#: Published module → {home: names}.
MOVED: dict[str, dict[str, str]] = {
    # ---------------------------------------------------------------- data
    "rl4co.data": {**_RECIPES, f"{_COMPAT}.data": _DATA_FILES},
    "rl4co.data.dataset": {
        "rl4co.data.dataset": "FastTdDataset=TensorDictDataset "
        "TensorDictDatasetFastGeneration=TensorDictDataset"
    },
    "rl4co.data.generate_data": {
        **_RECIPES,
        "rl4co.data.generate": "generate_dataset generate_default_datasets generate_env_data",
    },
    "rl4co.data.transforms": {
        "rl4co.data.augment": "StateAugmentation dihedral_8_augmentation min_max_normalize "
        "symmetric_augmentation"
    },
    "rl4co.data.utils": {
        "rl4co.data.io": "load_npz_to_tensordict save_tensordict_to_npz",
        f"{_COMPAT}.data": _DATA_FILES,
    },
    # ---------------------------------------------------------------- environments
    "rl4co.envs.common": {**_ENV_BASES, **_GENERATORS},
    "rl4co.envs.common.base": _ENV_BASES,
    "rl4co.envs.common.distribution_utils": {
        f"{_COMPAT}.distributions": "Cluster Mixed Gaussian_Mixture Mix_Distribution "
        "Mix_Multi_Distributions"
    },
    "rl4co.envs.common.utils": {**_GENERATORS, f"{_COMPAT}.tensors": "batch_to_scalar"},
    "rl4co.envs.eda.dpp.render": {"rl4co.envs.eda._figure": "render=draw_placement"},
    "rl4co.envs.eda.mdpp.render": {"rl4co.envs.eda._figure": "render=draw_placement"},
    "rl4co.envs.routing.pctsp.generator": {
        "rl4co.envs.routing.pctsp.generator": "MAX_LENGTHS=TOUR_LENGTHS"
    },
    "rl4co.envs.routing.pdp.env": {"rl4co.envs.routing.pdp_ruin_repair": "PDPRuinRepairEnv"},
    "rl4co.envs.routing.tsp.env": {
        "rl4co.envs.routing.tsp_kopt": "TSPkoptEnv",
        "rl4co.envs.routing.tsp_dense": "DenseRewardTSPEnv",
    },
    # ---------------------------------------------------------------- policies
    "rl4co.models.common": {
        **_CONSTRUCTIVE,
        **_AUTOREGRESSIVE,
        **_NONAUTOREGRESSIVE,
        **_IMPROVEMENT,
        **_TRANSDUCTIVE,
    },
    "rl4co.models.common.constructive": {**_CONSTRUCTIVE, **_AUTOREGRESSIVE, **_NONAUTOREGRESSIVE},
    "rl4co.models.common.constructive.base": _CONSTRUCTIVE,
    "rl4co.models.common.constructive.autoregressive": _AUTOREGRESSIVE,
    "rl4co.models.common.constructive.autoregressive.decoder": _AUTOREGRESSIVE,
    "rl4co.models.common.constructive.autoregressive.encoder": _AUTOREGRESSIVE,
    "rl4co.models.common.constructive.autoregressive.policy": _AUTOREGRESSIVE,
    "rl4co.models.common.constructive.nonautoregressive": _NONAUTOREGRESSIVE,
    "rl4co.models.common.constructive.nonautoregressive.decoder": _NONAUTOREGRESSIVE,
    "rl4co.models.common.constructive.nonautoregressive.encoder": _NONAUTOREGRESSIVE,
    "rl4co.models.common.constructive.nonautoregressive.policy": _NONAUTOREGRESSIVE,
    "rl4co.models.common.improvement": _IMPROVEMENT,
    "rl4co.models.common.improvement.base": _IMPROVEMENT,
    "rl4co.models.common.transductive": _TRANSDUCTIVE,
    "rl4co.models.common.transductive.base": _TRANSDUCTIVE,
    # ---------------------------------------------------------------- networks
    "rl4co.models.nn.attention": {
        "rl4co.models.nn.attention": "LogitAttention=PointerAttention",
        f"{_COMPAT}.networks": "MultiHeadCrossAttention",
        "torch.nn.functional": "scaled_dot_product_attention",
    },
    "rl4co.models.nn.env_embeddings.context": {
        f"{_EMBEDDINGS}._parts": "env_context_embedding",
        f"{_COMPAT}.embeddings": "EnvContext",
        f"{_EMBEDDINGS}.tsp": "TSPContext",
        f"{_EMBEDDINGS}.cvrp": "VRPContext=CVRPContext",
        f"{_EMBEDDINGS}.cvrptw": "VRPTWContext=CVRPTWContext",
        f"{_EMBEDDINGS}.svrp": "SVRPContext",
        f"{_EMBEDDINGS}.pctsp": "PCTSPContext",
        f"{_EMBEDDINGS}.op": "OPContext",
        f"{_EMBEDDINGS}.pdp": "PDPContext",
        f"{_EMBEDDINGS}.mtsp": "MTSPContext",
        f"{_EMBEDDINGS}.smtwtp": "SMTWTPContext",
        f"{_EMBEDDINGS}.mdcpdp": "MDCPDPContext",
        f"{_EMBEDDINGS}.mtvrp": "MTVRPContext",
        f"{_EMBEDDINGS}.flp": "FLPContext",
        f"{_EMBEDDINGS}.mcp": "MCPContext",
    },
    "rl4co.models.nn.env_embeddings.dynamic": {
        f"{_EMBEDDINGS}._parts": "env_dynamic_embedding",
        f"{_COMPAT}.embeddings": "StaticEmbedding",
        f"{_EMBEDDINGS}.sdvrp": "SDVRPDynamicEmbedding",
    },
    "rl4co.models.nn.env_embeddings.edge": {
        f"{_EMBEDDINGS}._parts": "env_edge_embedding",
        f"{_COMPAT}.embeddings": "TSPEdgeEmbedding CVRPEdgeEmbedding",
    },
    "rl4co.models.nn.env_embeddings.init": {
        f"{_EMBEDDINGS}._parts": "env_init_embedding",
        f"{_EMBEDDINGS}.tsp": "TSPInitEmbedding",
        f"{_EMBEDDINGS}.cvrp": "VRPInitEmbedding=CVRPInitEmbedding",
        f"{_EMBEDDINGS}.cvrptw": "VRPTWInitEmbedding=CVRPTWInitEmbedding",
        f"{_EMBEDDINGS}.svrp": "SVRPInitEmbedding",
        f"{_EMBEDDINGS}.pctsp": "PCTSPInitEmbedding",
        f"{_EMBEDDINGS}.op": "OPInitEmbedding",
        f"{_EMBEDDINGS}.dpp": "DPPInitEmbedding",
        f"{_EMBEDDINGS}.mdpp": "MDPPInitEmbedding",
        f"{_EMBEDDINGS}.pdp": "PDPInitEmbedding",
        f"{_EMBEDDINGS}.mtsp": "MTSPInitEmbedding",
        f"{_EMBEDDINGS}.smtwtp": "SMTWTPInitEmbedding",
        f"{_EMBEDDINGS}.mdcpdp": "MDCPDPInitEmbedding",
        f"{_EMBEDDINGS}.mtvrp": "MTVRPInitEmbedding",
        f"{_EMBEDDINGS}.flp": "FLPInitEmbedding",
        f"{_EMBEDDINGS}.mcp": "MCPInitEmbedding",
        f"{_ZOO}.matnet.encoder": "MatNetInitEmbedding=MatrixInitEmbedding",
    },
    "rl4co.models.nn.graph.attnnet": {
        f"{_COMPAT}.networks": "GraphAttentionNetwork MultiHeadAttentionLayer Normalization "
        "SkipConnection"
    },
    "rl4co.models.nn.graph.gcn": {
        f"{_COMPAT}.graph_encoders": "GCNEncoder EdgeIndexFnSignature edge_idx_fn_wrapper"
    },
    "rl4co.models.nn.graph.hgnn": {f"{_COMPAT}.shops": "HetGNNEncoder"},
    "rl4co.models.nn.graph.mpnn": {
        f"{_COMPAT}.graph_encoders": "MessagePassingLayer MessagePassingEncoder"
    },
    "rl4co.models.nn.mlp": {f"{_COMPAT}.networks": "MLP"},
    "rl4co.models.nn.ops": {
        f"{_COMPAT}.networks": "SkipConnection Normalization TransformerFFN PositionalEncoding"
    },
    # ---------------------------------------------------------------- algorithms
    "rl4co.models.rl.a2c.a2c": {f"{_RL}.a2c": "A2C"},
    "rl4co.models.rl.common.base": {f"{_RL}.base": "RL4COLitModule"},
    "rl4co.models.rl.common.critic": {f"{_RL}.critic": "CriticNetwork create_critic_from_actor"},
    "rl4co.models.rl.common.utils": {f"{_RL}.reward_scaling": "RewardScaler"},
    "rl4co.models.rl.ppo.n_step_ppo": {f"{_RL}.n_step_ppo": "n_step_PPO"},
    "rl4co.models.rl.ppo.ppo": {f"{_RL}.ppo": "PPO"},
    "rl4co.models.rl.ppo.stepwise_ppo": {f"{_RL}.stepwise_ppo": "StepwisePPO"},
    "rl4co.models.rl.reinforce.baselines": {
        f"{_RL}.baselines": "REINFORCEBaseline NoBaseline SharedBaseline ExponentialBaseline "
        "MeanBaseline WarmupBaseline CriticBaseline RolloutBaseline get_reinforce_baseline "
        "REINFORCE_BASELINES_REGISTRY=BASELINES"
    },
    "rl4co.models.rl.reinforce.reinforce": {f"{_RL}.reinforce": "REINFORCE"},
    # ---------------------------------------------------------------- methods
    "rl4co.models.zoo.active_search.search": {f"{_ZOO}.active_search": "ActiveSearch"},
    "rl4co.models.zoo.dact.decoder": {f"{_ZOO}.dact.policy": "DACTDecoder"},
    "rl4co.models.zoo.dact.encoder": {f"{_ZOO}.dact.policy": "DACTEncoder"},
    "rl4co.models.zoo.eas.search": {f"{_ZOO}.eas": "EAS EASEmb EASLay"},
    "rl4co.models.zoo.ham.encoder": {
        f"{_ZOO}.ham.encoder": "GraphHeterogeneousAttentionEncoder="
        "HeterogeneousAttentionModelEncoder"
    },
    "rl4co.models.zoo.matnet.encoder": {"rl4co.models.nn.matnet": "MatNetLayer"},
    "rl4co.models.zoo.matnet.policy": {f"{_ZOO}.matnet.multistage": "MultiStageFFSPPolicy"},
    "rl4co.models.zoo.mdam.encoder": {
        f"{_ZOO}.mdam.encoder": "MDAMGraphAttentionEncoder=MDAMEncoder"
    },
    "rl4co.models.zoo.nargnn": {f"{_POLICIES}.nonautoregressive": "NARGNNEncoder NARGNNPolicy"},
    "rl4co.models.zoo.nargnn.encoder": {
        f"{_POLICIES}.nonautoregressive": "NARGNNEncoder NARGNNNodeEncoder"
    },
    "rl4co.models.zoo.nargnn.policy": {f"{_POLICIES}.nonautoregressive": "NARGNNPolicy"},
    "rl4co.models.zoo": {
        **_AUTOREGRESSIVE,
        f"{_POLICIES}.nonautoregressive": "NonAutoregressivePolicy NARGNNPolicy",
        **_TRANSDUCTIVE,
    },
    "rl4co.models.zoo.symnco.losses": {
        f"{_COMPAT}.training": "problem_symmetricity_loss solution_symmetricity_loss "
        "invariance_loss"
    },
    # ---------------------------------------------------------------- tasks and utilities
    "rl4co.tasks.eval": {
        f"{_COMPAT}.evaluation": "EvalBase GreedyEval AugmentationEval SamplingEval "
        "GreedyMultiStartEval GreedyMultiStartAugmentEval"
    },
    "rl4co.tasks.train": {"rl4co.tasks.train": "train=main"},
    "rl4co.utils.callbacks.speed_monitor": {f"{_COMPAT}.callbacks": "SpeedMonitor"},
    "rl4co.utils.decoding": {
        "rl4co.decoding.logits": "modify_logits_for_top_k_filtering=keep_top_k",
        f"{_COMPAT}.tensors": "modify_logits_for_top_p_filtering",
    },
    "rl4co.utils.instantiators": {_INSTANTIATE: "instantiate_callbacks instantiate_loggers"},
    "rl4co.utils.lightning": {f"{_COMPAT}.training": "get_lightning_device"},
    "rl4co.utils.ops": {f"{_COMPAT}.tensors": "get_full_graph_edge_index sample_n_random_actions"},
    "rl4co.utils.optim_helpers": {f"{_COMPAT}.training": "create_optimizer create_scheduler"},
    "rl4co.utils.rich_utils": {_INSTANTIATE: "print_config_tree"},
    "rl4co.utils.test_utils": {"rl4co.envs.testing": "get_env=make_sized_env"},
    "rl4co.utils.utils": {
        _INSTANTIATE: "task_wrapper extras instantiate_callbacks instantiate_loggers "
        "log_hyperparameters get_metric_value close_loggers show_versions",
        f"{_COMPAT}.training": "merge_with_defaults",
        "rl4co.utils.pylogger": "get_pylogger",
    },
}

_INTERNAL = "it was an internal of the published package that its users do not import"
_CACHE = "`prepare` of a decoder returns its cache, see rl4co.models.zoo.am.DecoderCache"
_SHOP_FEATURES = "use rl4co.models.zoo.l2d.features.Shop, which computes all features"
_TAGS = "no command waits for input; set tags=[...] in the configuration"
_RENDER = "use env.render(td), which draws the current solution"

_AUGMENTATION_NAMES = "dihedral_8_augmentation_wrapper symmetric_transform get_augment_function"
_AUGMENTATION = "use StateAugmentation, dihedral_8_augmentation or symmetric_augmentation"

#: Published module → {names without a counterpart: why, and what to use}.
MISSING: dict[str, dict[str, str]] = {
    "rl4co.data": {_AUGMENTATION_NAMES: _AUGMENTATION},
    "rl4co.data.transforms": {_AUGMENTATION_NAMES: _AUGMENTATION},
    "rl4co.data.utils": {"CURR_DIR ROOT_PATH": "no function guesses folders; pass paths"},
    "rl4co.envs.graph.mcp.generator": {
        "remove_repeat": "MCPGenerator draws sets without repeats; pass your `membership`"
    },
    "rl4co.envs.routing.cvrp.local_search": {
        "AlgorithmParameters CAlgorithmParameters C_DBL_MAX C_INT_MAX HGS_LIBRARY_FILEPATH "
        "RoutingSolution Solver c_double_p c_int_p "
        "check_validity get_subroutes hgs_dir merge_subroutes read_routes swapstar write_routes": (
            "there is no external HGS library; use env.local_search(td, actions) or "
            "env.solve(instances, solver='pyvrp')"
        ),
        "local_search": "use env.local_search(td, actions)",
    },
    "rl4co.envs.routing.mtvrp.baselines.solve": {
        "NoSolver": "an unknown solver raises UnknownNameError",
        "solve": "use env.solve(instances, max_runtime, num_procs, solver)",
    },
    "rl4co.envs.routing.pdp.render": {"render_improvement": _RENDER},
    "rl4co.envs.routing.tsp.local_search": {
        "two_opt_once local_search": "use env.local_search(td, actions)"
    },
    "rl4co.envs.routing.tsp.render": {"render_improvement": _RENDER},
    "rl4co.envs.scheduling.ffsp.env": {
        "IndexTables": "all of the state is in the TensorDict: `stage_idx`, `machine_idx`"
    },
    "rl4co.envs.scheduling.fjsp": {
        "NO_OP_ID INIT_FINISH": (
            "action 0 waits; `op_scheduled` is the mask of scheduled operations"
        )
    },
    "rl4co.envs.scheduling.fjsp.parser": {
        "ProcessingData parse_job_line get_n_ops_of_instance get_max_ops_from_files file2lines "
        "write_one": "use read(folder) and write(folder, td), which pad to the longest instance"
    },
    "rl4co.envs.scheduling.jssp.parser": {
        "ProcessingData parse_job_line get_n_ops_of_instance get_max_ops_from_files file2lines": (
            "use read(folder), which pads to the longest instance"
        )
    },
    "rl4co.models.nn.attention": {
        "PointerAttnMoE": "pass moe_kwargs={'decoder': ...} to AttentionModelPolicy",
        "MultiHeadCompat": "its products are in rl4co.models.nn.synthesis and .pair_moves",
        "PolyNetAttention": "it is part of rl4co.models.zoo.polynet.PolyNetPolicy",
        "sdpa_fn_wrapper": "pass sdpa_fn=torch.nn.functional.scaled_dot_product_attention",
    },
    "rl4co.models.nn.env_embeddings.context": {
        "DPPContext": "use env_context_embedding('dpp', config)",
        "FFSPContext": "it is part of rl4co.models.zoo.matnet.MatNetPolicy",
        "SchedulingContext": _SHOP_FEATURES,
    },
    "rl4co.models.nn.env_embeddings.dynamic": {"JSSPDynamicEmbedding": _SHOP_FEATURES},
    "rl4co.models.nn.env_embeddings.edge": {
        "VRPPolarEdgeEmbedding": "use env_edge_embedding('cvrpmvc', config), as GLOP does",
        "ATSPEdgeEmbedding": "MatNet reads the matrix itself; a graph needs an EdgeEmbedding",
        "NoEdgeEmbedding": "leave out `edge` of the problem's EnvEmbeddings",
    },
    "rl4co.models.nn.env_embeddings.init": {
        "JSSPInitEmbedding FJSPInitEmbedding FJSPMatNetInitEmbedding": (
            "use rl4co.models.zoo.l2d.encoder.ShopInitEmbedding"
        ),
        "VRPPolarInitEmbedding": "use env_edge_embedding('cvrpmvc', config), as GLOP does",
    },
    "rl4co.models.nn.flash_attention": {
        "fused_chunk_linear_attn_wrapper": (
            "linear attention is another model; pass your function as sdpa_fn"
        )
    },
    "rl4co.models.nn.graph.hgnn": {"HetGNNLayer HetGNNBlock": "use rl4co.models.nn.hgnn.HGNNLayer"},
    "rl4co.models.nn.ops": {"AdaptiveSequential RandomEncoding": _INTERNAL},
    "rl4co.models.nn.moe": {"SparseDispatcher": "MoE of this module sends rows to experts itself"},
    "rl4co.models.rl.ppo.n_step_ppo": {
        "Memory": "a segment of n steps is a Segment of rl4co.models.rl.n_step_ppo"
    },
    "rl4co.models.rl.ppo.stepwise_ppo": {
        "make_replay_buffer": "use rl4co.models.rl.transitions.TransitionBuffer"
    },
    "rl4co.models.zoo.am.decoder": {"PrecomputedCache": _CACHE},
    "rl4co.models.zoo.dact.decoder": {"CriticDecoder": "use rl4co.models.nn.value.SolutionCritic"},
    "rl4co.models.zoo.dact.encoder": {
        "DAC_ATT DACTEncoderLayer DACsubLayer FFNsubLayer": "use rl4co.models.nn.dual_aspect"
    },
    "rl4co.models.zoo.eas.decoder": {
        "forward_pointer_attn_eas_lay forward_eas": ("use AdaptedDecoder of this module")
    },
    "rl4co.models.zoo.glop.adapter": {
        "adapter_map": "adapters are chosen by the environment, see GLOPPolicy",
        "TSP2SHPPAdapter": "use TSPAdapter of this module",
        "VRP2SubTSPAdapter": "use CVRPAdapter of this module",
    },
    "rl4co.models.zoo.glop.policy": {
        "SubProblemSolverType": "subprob_solver is a name or a callable, see GLOPPolicy"
    },
    "rl4co.models.zoo.ham.attention": {"HeterogenousMHA": "use HeterogeneousAttention"},
    "rl4co.models.zoo.ham.encoder": {"HeterogeneuousMHALayer": "use HeterogeneousLayer"},
    "rl4co.models.zoo.l2d.decoder": {
        "L2DActor L2DAttnActor L2DAttnPointer JSSPActor FJSPActor": (
            "use rl4co.models.zoo.l2d.actors"
        ),
        "AttnActor": "use StepwisePPO with an AttentionModelPolicy, which needs no L2DDecoder",
    },
    "rl4co.models.zoo.l2d.encoder": {"GCN4JSSP": "use GCNEncoder of this module"},
    "rl4co.models.zoo.matnet.decoder": {
        "PrecomputedCache": _CACHE,
        "MatNetFFSPDecoder MultiStageFFSPDecoder": "use MatNetPolicy(env_name='ffsp')",
    },
    "rl4co.models.zoo.matnet.encoder": {
        "MixedScoresSDPA MatNetCrossMHA MatNetMHA": "use rl4co.models.nn.mixed_attention"
    },
    "rl4co.models.zoo.matnet.model": {
        "select_matnet_policy": "MatNet and MatNetPolicy choose by `env_name`"
    },
    "rl4co.models.zoo.mdam.decoder": {"PrecomputedCache": _CACHE},
    "rl4co.models.zoo.mdam.model": {"rollout": "use policy(td, env, decode_type='greedy')"},
    "rl4co.models.zoo.nargnn.encoder": {
        "EdgeHeatmapGenerator": "use EdgeHead of rl4co.models.nn.edge_gnn"
    },
    "rl4co.models.zoo.neuopt.policy": {
        "CustomizeTSPInitEmbedding": "use rl4co.models.policies.synthesis_encoder.CoordinateNetwork"
    },
    "rl4co.models.zoo.polynet.decoder": {"PrecomputedCache": _CACHE},
    "rl4co.models.zoo.ptrnet.critic": {"CriticNetworkLSTM": "use PointerNetworkCritic"},
    "rl4co.models.zoo.ptrnet.decoder": {
        "SimpleAttention": "use rl4co.models.nn.additive_attention.AdditiveAttention",
        "Decoder": "use PointerNetworkDecoder",
    },
    "rl4co.models.zoo.ptrnet.encoder": {"Encoder": "use PointerNetworkEncoder"},
    "rl4co.tasks.eval": {
        "check_unused_kwargs": "unknown arguments are errors",
        "get_automatic_batch_size": "pass batch_size to evaluate_policy",
    },
    "rl4co.utils.decoding": {"decode_logprobs": "use Greedy or Sampling of this module"},
    "rl4co.utils.lightning": {"remove_key clean_hydra_config": _INTERNAL},
    "rl4co.utils.ops": {
        "get_best_actions adj_to_pyg_edge_index cartesian_to_polar batched_scatter_sum": _INTERNAL,
        "select_start_nodes_by_distance": "use select_start_nodes",
    },
    "rl4co.utils.optim_helpers": {"get_pytorch_lr_schedulers get_pytorch_optimizers": _INTERNAL},
    "rl4co.utils.utils": {"save_file": _INTERNAL},
    "rl4co.utils": {"enforce_tags": _TAGS},
    "rl4co.utils.rich_utils": {"enforce_tags": _TAGS},
}

#: Published module (with all below it) without a counterpart → why, and what to use.
GONE: dict[str, str] = {
    "rl4co.envs.routing.mpdp": "it was not exported; use MDCPDPEnv, with several depots",
    **{
        f"rl4co.envs.routing.mtvrp.baselines.{module}": (
            "use env.solve(instances, max_runtime, num_procs, solver='pyvrp' | 'ortools' | 'lkh')"
        )
        for module in ("constants", "lkh", "ortools", "pyvrp", "utils")
    },
    "rl4co.envs.scheduling.fjsp.utils": _SHOP_FEATURES,
    "rl4co.models.nn.graph.gnn": "use EdgeGNN and EdgeGNNLayer of rl4co.models.nn.edge_gnn",
    "rl4co.models.nn.pos_embeddings": "use rl4co.models.nn.positional.CyclicPositionalEncoding",
    "rl4co.models.zoo.deepaco.antsystem": "use rl4co.decoding.ant_colony.AntColony",
    "rl4co.models.zoo.eas.nn": "use ResidualLayer of rl4co.models.zoo.eas.adaptation",
    "rl4co.models.zoo.gfacs.encoder": (
        "GFACSPolicy takes a NARGNNEncoder; its partition function is LogPartition"
    ),
    "rl4co.models.zoo.glop.adapter.tsp_adapter": "use TSPAdapter of rl4co.models.zoo.glop.adapter",
    "rl4co.models.zoo.glop.adapter.vrp_adapter": "use CVRPAdapter of rl4co.models.zoo.glop.adapter",
    "rl4co.models.zoo.matnet.matnet_w_sa": (
        "use MatNetShopEncoder of rl4co.models.zoo.l2d.encoder, or pass self_attention=True to "
        "MatNetLayers"
    ),
    "rl4co.models.zoo.mdam.mha": "MDAMEncoder keeps the last layer, which is re-evaluated",
    "rl4co.models.zoo.n2s.decoder": (
        "use N2SDecoder of rl4co.models.zoo.n2s.policy, NodePairRemoval and NodePairReinsertion "
        "of rl4co.models.nn.pair_moves, SolutionCritic of rl4co.models.nn.value"
    ),
    "rl4co.models.zoo.n2s.encoder": (
        "use SynthesisEncoder of rl4co.models.policies.synthesis_encoder and the layers of "
        "rl4co.models.nn.synthesis"
    ),
    "rl4co.models.zoo.neuopt.decoder": "use NeuOptDecoder of rl4co.models.zoo.neuopt.policy",
    "rl4co.utils.pe": (
        "encodings of routes that no method of the zoo uses; the cyclic one of DACT is "
        "rl4co.models.nn.positional.CyclicPositionalEncoding"
    ),
}
