"""Moves of a customer towards its neighbours: relocate, swap, 2-opt and 2-opt*.

The search is at customer u, and v is one of its neighbours; p and x are beside u, q and y beside v.
Moves have numbers, because compiled loops compare these quickly.
"""

from __future__ import annotations

from rl4co.envs.routing._node_queue import Ints
from rl4co.envs.routing.cvrp.fleet import Fleet, between, enqueue, insert, link, refresh, unlink
from rl4co.envs.routing.tsp.cycle import MIN_SHARE
from rl4co.kernels import compiled


@compiled
def improve_customer(f: Fleet, u: int) -> bool:
    """Applies the best move that puts u beside one of its neighbours; whether there was one."""
    best, kind, other = 0.0, 0, 0
    for v in f.neighbors[u]:
        gain, candidate = _best_insertion(f, u, v)
        if gain > best:
            best, kind, other = gain, candidate, v
        gain, candidate = _best_insertion(f, u, f.before[v])
        if gain > best:
            best, kind, other = gain, candidate, f.before[v]
        gain, candidate = _best_exchange(f, u, v)
        if gain > best:
            best, kind, other = gain, candidate, v
        gain, candidate = _best_crossing(f, u, v)
        if gain > best:
            best, kind, other = gain, candidate, v
    if kind == 0 or best <= MIN_SHARE * _edges(f, u, other):
        return False
    _apply(f, u, other, kind)
    return True


@compiled
def _edges(f: Fleet, u: int, v: int) -> float:
    """Length of the edges at two nodes."""
    total = between(f, f.before[u], u) + between(f, u, f.after[u])
    return total + between(f, f.before[v], v) + between(f, v, f.after[v])


@compiled
def _best_insertion(f: Fleet, u: int, v: int) -> tuple[float, int]:
    """Kinds 1 to 3: u, u and its successor, or these reversed, behind v."""
    size = len(f.points)
    p, x, y = f.before[u], f.after[u], f.after[v]
    if u in (v, y):
        return 0.0, 0
    same = f.route[u] == f.route[v]
    spare = f.limit[0] - f.load[f.route[v]]
    best, kind = 0.0, 0
    entry, gap = between(f, p, u), between(f, v, y)
    if same or f.demand[u] <= spare:
        taken = entry + between(f, u, x) + gap
        gain = taken - between(f, p, x) - between(f, v, u) - between(f, u, y)
        if gain > best:
            best, kind = gain, 1
    if x < size and v != x and (same or f.demand[u] + f.demand[x] <= spare):
        z = f.after[x]
        freed = entry + between(f, x, z) + gap - between(f, p, z)
        gain = freed - between(f, v, u) - between(f, x, y)
        if gain > best:
            best, kind = gain, 2
        gain = freed - between(f, v, x) - between(f, u, y)
        if gain > best:
            best, kind = gain, 3
    return best, kind


@compiled
def _best_exchange(f: Fleet, u: int, v: int) -> tuple[float, int]:
    """Kinds 4 to 6: u and v, u with its successor and v, or both with theirs are exchanged."""
    size = len(f.points)
    p, x, q, y = f.before[u], f.after[u], f.before[v], f.after[v]
    if u in (q, y):
        return 0.0, 0
    same = f.route[u] == f.route[v]
    limit = f.limit[0]
    one, other = f.load[f.route[u]], f.load[f.route[v]]
    best, kind = 0.0, 0
    old = between(f, p, u) + between(f, q, v)
    shift = f.demand[v] - f.demand[u]  # added load of the route of u
    if same or (one + shift <= limit and other - shift <= limit):
        gain = old + between(f, u, x) + between(f, v, y)
        gain -= between(f, p, v) + between(f, v, x) + between(f, q, u) + between(f, u, y)
        if gain > best:
            best, kind = gain, 4
    if x >= size or x == q:
        return best, kind
    z = f.after[x]
    shift -= f.demand[x]
    if same or (one + shift <= limit and other - shift <= limit):
        gain = old + between(f, x, z) + between(f, v, y)
        gain -= between(f, p, v) + between(f, v, z) + between(f, q, u) + between(f, x, y)
        if gain > best:
            best, kind = gain, 5
    if y >= size or y == p:
        return best, kind
    shift += f.demand[y]
    if same or (one + shift <= limit and other - shift <= limit):
        w = f.after[y]
        gain = old + between(f, x, z) + between(f, y, w)
        gain -= between(f, p, v) + between(f, y, z) + between(f, q, u) + between(f, x, w)
        if gain > best:
            best, kind = gain, 6
    return best, kind


@compiled
def _best_crossing(f: Fleet, u: int, v: int) -> tuple[float, int]:
    """Kinds 7 and 8: 2-opt beside u and v; 9 to 11: 2-opt* between their routes."""
    p, x, q, y = f.before[u], f.after[u], f.before[v], f.after[v]
    near = between(f, u, v)
    behind = between(f, u, x) + between(f, v, y) - near - between(f, x, y)
    ahead = between(f, p, u) + between(f, q, v) - near - between(f, p, q)
    if f.route[u] == f.route[v]:
        if behind > ahead and x != v and y != u:
            return behind, 7
        return (ahead, 8) if q != u and p != v else (0.0, 0)
    limit = f.limit[0]
    one, other = f.load[f.route[u]], f.load[f.route[v]]
    best, kind = 0.0, 0
    heads = f.carried[u] + f.carried[v]
    if behind > best and heads <= limit and one + other - heads <= limit:
        best, kind = behind, 9
    heads = f.carried[p] + f.carried[q]
    if ahead > best and heads <= limit and one + other - heads <= limit:
        best, kind = ahead, 10
    gain = between(f, u, x) + between(f, q, v) - near - between(f, q, x)
    mixed = f.carried[u] + other - f.carried[q]
    if gain > best and mixed <= limit and one + other - mixed <= limit:
        best, kind = gain, 11
    return best, kind


@compiled
def _apply(f: Fleet, u: int, v: int, kind: int) -> None:
    p, x, q, y = f.before[u], f.after[u], f.before[v], f.after[v]
    one, other = f.route[u], f.route[v]
    z, w = f.after[x], f.after[y]
    if kind >= 7:
        _cross(f, u, v, kind)
    else:
        unlink(f, u)
        if kind in (2, 3, 5, 6):
            unlink(f, x)
        if kind <= 3:
            insert(f, x if kind == 3 else u, v)
            if kind > 1:
                insert(f, u if kind == 3 else x, f.after[v])
        else:
            unlink(f, v)
            if kind == 6:
                unlink(f, y)
            insert(f, v, p)
            if kind == 6:
                insert(f, y, v)
            insert(f, u, q)
            if kind > 4:
                insert(f, x, u)
    refresh(f, one)
    if other != one:
        refresh(f, other)
    for node in (u, v, p, x, q, y, z, w):
        enqueue(f, node)


@compiled
def _copy_out(f: Fleet, r: int, out: Ints) -> int:
    """Customers of a route in order; their number."""
    node, count = f.after[len(f.points) + r], 0
    while node < len(f.points):
        out[count] = node
        count += 1
        node = f.after[node]
    return count


@compiled
def _cross(f: Fleet, u: int, v: int, kind: int) -> None:
    """Reconnects the parts of one or two routes; see :func:`_best_crossing`."""
    one, other = f.route[u], f.route[v]
    a, b = f.first, f.second
    count = _copy_out(f, one, a)
    i, j = f.position[u], f.position[v]
    if one == other:
        # Nodes i + 1 ... j, or i ... j - 1, are reversed.
        if i > j:
            i, j = j, i
        low, high = (i, j - 1) if kind == 7 else (i - 1, j - 2)
        _join(f, one, a, 0, low, a, high, low - 1, a, high + 1, count)
        return
    total = _copy_out(f, other, b)
    if kind == 10:
        i, j = i - 1, j - 1
    if kind == 11:
        j -= 1
        _join(f, one, a, 0, i, b, j, total, b, total, total)
        _join(f, other, b, 0, j, a, i, count, a, count, count)
        return
    _join(f, one, a, 0, i, b, j - 1, -1, b, total, total)
    _join(f, other, a, count - 1, i - 1, b, j, total, b, total, total)


@compiled
def _join(
    f: Fleet,
    r: int,
    a: Ints,
    a_from: int,
    a_to: int,
    b: Ints,
    b_from: int,
    b_to: int,
    c: Ints,
    c_from: int,
    c_to: int,
) -> None:
    """Makes a route of three ranges, each up to but without its end, forwards or backwards."""
    depot = len(f.points) + r
    tail = depot
    for i in range(a_from, a_to, 1 if a_to > a_from else -1):
        link(f, tail, a[i])
        tail = a[i]
    for i in range(b_from, b_to, 1 if b_to > b_from else -1):
        link(f, tail, b[i])
        tail = b[i]
    for i in range(c_from, c_to, 1 if c_to > c_from else -1):
        link(f, tail, c[i])
        tail = c[i]
    link(f, tail, depot)
