"""Small instances in the form of files, whose best solutions are known by hand."""

from __future__ import annotations

# Customers with demands 2, 3, 4, 1 for vehicles of 5. The best routes are 1-2, of 3 + 4 + 5, and
# 3-4, of 4 and twice the root of 68, which is rounded to 8: 32 in all.
VRP = """\
NAME : tiny
TYPE : CVRP
DIMENSION : 5
EDGE_WEIGHT_TYPE : EUC_2D
CAPACITY : 5
NODE_COORD_SECTION
1 0 0
2 0 3
3 4 3
4 4 0
5 2 8
DEMAND_SECTION
1 0
2 2
3 3
4 4
5 1
DEPOT_SECTION
1
-1
EOF
"""
# Corners of a rectangle, 300 by 40, and the middle of a long side: the best tour is 680.
TSP = """\
NAME : long
TYPE : TSP
DIMENSION : 5
EDGE_WEIGHT_TYPE : EUC_2D
NODE_COORD_SECTION
1 1000 2000
2 1300 2040
3 1300 2000
4 1000 2040
5 1150 2000
EOF
"""
# Two jobs on three machines, in the standard format of job shops. The first one takes 12 without
# waiting, and that leaves room for the other.
JSP = """\
2 3
2 5 0 3 1 4
1 2 2 6 0 1
"""
# Two flexible jobs: one has to wait for nothing, as the other runs elsewhere; 4 + 7 is 11.
FJS = """\
2 3 2
2 2 1 4 3 5 1 2 7
1 3 1 1 2 2 3 3
"""
# Two customers with time windows, and two vehicles, which is no limit.
SOLOMON = """\
T101

VEHICLE
NUMBER     CAPACITY
  2          50

CUSTOMER
CUST NO.  XCOORD.   YCOORD.    DEMAND   READY TIME  DUE DATE   SERVICE   TIME

    0      0    0    0     0    100    0
    1      1    1   10     5     20    3
    2      2    2   20     0     30    4
"""
