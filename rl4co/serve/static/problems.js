// Problems as the page sees them: nodes of an instance, routes and schedules of actions.

/** Kind of drawing for an instance: "tour", "routes", "selection", "shop", or null without one. */
export function kindOf(instance) {
  if (instance.proc_times) return "shop";
  if (instance.to_choose !== undefined) return "selection";
  if (instance.depot || instance.demand_linehaul) return "routes";
  if (instance.locs || instance.cost_matrix) return "tour";
  return null;
}

/** A number per instance; the service writes some as lists of one. */
export const scalar = (value) => (Array.isArray(value) ? value[0] : value);

/** A number with at most `digits` decimals, without trailing zeros; infinity for null. */
export function format(value, digits = 2) {
  if (value === null || value === undefined) return "∞";
  if (typeof value !== "number") return String(value);
  return String(Number(value.toFixed(Math.abs(value) >= 1000 ? 0 : digits)));
}

export const percent = (value) =>
  value > 0 && value < 0.01 ? "< 1 %" : `${Math.round(100 * value)} %`;

/** The view of an instance: how to draw it and how to read actions. */
export function viewOf(problem, instance) {
  const views = { tour: TourView, routes: RoutesView, selection: SelectionView, shop: ShopView };
  const View = views[kindOf(instance)];
  return View ? new View(problem, instance) : null;
}

/** Places in the plane; instances that have only a matrix get a circle. */
function locations(instance) {
  if (instance.locs) return instance.depot ? [instance.depot, ...instance.locs] : instance.locs;
  const matrix = instance.cost_matrix || instance.orig_distances;
  return matrix.map((_, i) => {
    const angle = Math.PI / 2 - (2 * Math.PI * i) / matrix.length;
    return [0.5 + 0.45 * Math.cos(angle), 0.5 + 0.45 * Math.sin(angle)];
  });
}

/** Nodes in the plane, shared by tours, routes and selections. */
class PlaneView {
  constructor(problem, instance) {
    this.problem = problem;
    this.instance = instance;
    this.nodes = locations(instance).map(([x, y], index) => ({
      index, x, y, role: "customer", title: `Node ${index}`, size: 1,
    }));
    this.hasMatrix = Boolean(instance.cost_matrix);
  }

  /** Corners of the area to draw: the unit square where it holds all nodes. */
  get bounds() {
    if (this.nodes.every(({ x, y }) => x >= 0 && x <= 1 && y >= 0 && y <= 1)) return [0, 0, 1, 1];
    const xs = this.nodes.map((node) => node.x), ys = this.nodes.map((node) => node.y);
    const low = [Math.min(...xs), Math.min(...ys)], high = [Math.max(...xs), Math.max(...ys)];
    return [...low, ...high.map((value, axis) => Math.max(value, low[axis] + 1e-9))];
  }

  distance(i, j) {
    if (this.hasMatrix) return this.instance.cost_matrix[i][j];
    return Math.hypot(this.nodes[i].x - this.nodes[j].x, this.nodes[i].y - this.nodes[j].y);
  }

  actionTitle(action) {
    return this.nodes[action] ? this.nodes[action].title : `Action ${action}`;
  }

  actionNode(action) {
    return action;
  }

  nodeAction(index) {
    return index;
  }

  pathLength(paths) {
    let sum = 0;
    for (const { nodes } of paths)
      for (let k = 1; k < nodes.length; k++) sum += this.distance(nodes[k - 1], nodes[k]);
    return sum;
  }
}

/** One closed tour without a depot. */
class TourView extends PlaneView {
  partial(actions) {
    const nodes = [...actions];
    if (nodes.length === this.nodes.length) nodes.push(nodes[0]);
    const paths = nodes.length ? [{ nodes, route: 0 }] : [];
    return { paths, visited: new Set(actions), current: actions.at(-1) ?? null };
  }

  measure(actions) {
    return { title: "length", value: this.pathLength(this.partial(actions).paths) };
  }
}

/** Routes from a depot, node 0: also tours with prizes, and pickups with deliveries. */
class RoutesView extends PlaneView {
  constructor(problem, instance) {
    super(problem, instance);
    const first = this.nodes[0];
    first.role = "depot";
    first.title = "Depot";
    this.isOpen = Boolean(scalar(instance.open_route));
    this.numCustomers = this.nodes.length - 1;
    this.isPairs = problem === "pdp";
    const amounts = this.amounts();
    const largest = Math.max(...amounts.map(Math.abs), 1e-9);
    for (const node of this.nodes.slice(1)) {
      node.title = `Customer ${node.index}`;
      node.size = amounts.length ? Math.abs(amounts[node.index - 1]) / largest : 0.5;
      if (instance.demand_backhaul && instance.demand_backhaul[node.index] > 0) {
        node.role = "backhaul";
        node.title = `Backhaul ${node.index}`;
      }
    }
    if (this.isPairs) this.markPairs();
    this.markWindows();
  }

  /** What nodes differ in by size: demands or prizes of the customers. */
  amounts() {
    const { demand, prize, demand_linehaul: linehaul, demand_backhaul: backhaul } = this.instance;
    if (linehaul) return linehaul.slice(1).map((value, i) => value + backhaul[i + 1]);
    return (demand || prize || []).slice(-this.numCustomers);
  }

  markPairs() {
    const half = this.numCustomers / 2;
    this.links = [];
    for (let i = 1; i <= half; i++) {
      Object.assign(this.nodes[i], { role: "pickup", title: `Pickup ${i}` });
      Object.assign(this.nodes[i + half], { role: "delivery", title: `Delivery ${i}` });
      this.links.push([i, i + half]);
    }
  }

  /** Time windows as parts of the day that ends when the depot closes. */
  markWindows() {
    const windows = this.instance.time_windows;
    if (!windows) return;
    const ends = windows.map((window) => window[1]).filter((end) => end !== null);
    const horizon = windows[0][1] ?? Math.max(...ends, 0);
    for (const node of this.nodes.slice(1)) {
      const [opens, closes] = windows[node.index];
      if (closes !== null && horizon > 0) node.window = [opens / horizon, closes / horizon];
    }
  }

  partial(actions) {
    const visited = new Set(actions.filter((action) => action !== 0));
    const paths = [];
    let nodes = [0];
    for (const action of actions) {
      if (action === 0 && nodes.length === 1) continue;
      nodes.push(action);
      if (action !== 0) continue;
      if (this.isOpen) nodes.pop();
      paths.push({ nodes, route: paths.length });
      nodes = [0];
    }
    if (nodes.length > 1) {
      if (visited.size === this.numCustomers && !this.isOpen) nodes.push(0);
      paths.push({ nodes, route: paths.length });
    }
    return { paths, visited, current: actions.at(-1) ?? 0 };
  }

  measure(actions) {
    const { paths, visited } = this.partial(actions);
    const { prize } = this.instance;
    if (!prize) return { title: "length", value: this.pathLength(paths) };
    const shift = prize.length - this.nodes.length;
    const value = [...visited].reduce((sum, node) => sum + prize[node + shift], 0);
    return { title: "prize", value };
  }
}

/** Locations of which some are chosen, and serve the others. */
class SelectionView extends PlaneView {
  constructor(problem, instance) {
    super(problem, instance);
    for (const node of this.nodes) node.title = `Location ${node.index}`;
    this.matrix = instance.cost_matrix || (instance.locs ? null : instance.orig_distances);
  }

  distance(i, j) {
    return this.matrix ? this.matrix[i][j] : super.distance(i, j);
  }

  partial(actions) {
    const chosen = actions.slice(0, scalar(this.instance.to_choose));
    const facilities = chosen.map((index, route) => ({ index, route }));
    const spokes = [];
    for (const { index } of facilities.length ? this.nodes : []) {
      const costs = facilities.map((facility) => this.distance(facility.index, index));
      const nearest = costs.indexOf(Math.min(...costs));
      spokes.push({ from: facilities[nearest].index, to: index, route: nearest });
    }
    return { paths: [], spokes, facilities, visited: new Set(chosen), current: null };
  }

  measure(actions) {
    const { spokes } = this.partial(actions);
    const value = spokes.reduce((sum, { from, to }) => sum + this.distance(from, to), 0);
    return { title: "distance", value };
  }
}

/** Job shops, also flexible ones: schedules as bars on machines. */
class ShopView {
  constructor(problem, instance) {
    this.problem = problem;
    this.instance = instance;
    this.times = instance.proc_times;
    this.numMachines = this.times.length;
    this.first = instance.start_op_per_job;
    this.last = instance.end_op_per_job;
    this.numJobs = this.first.length;
    this.isFlexible = this.first.some((op, job) =>
      this.range(job).some((k) => this.times.filter((row) => row[k] > 0).length > 1));
    this.isFlexible = this.isFlexible || problem === "fjsp";
  }

  range(job) {
    const count = this.last[job] - this.first[job] + 1;
    return Array.from({ length: count }, (_, k) => this.first[job] + k);
  }

  machineOf(op) {
    return this.times.findIndex((row) => row[op] > 0);
  }

  /** Bars of all operations if jobs never waited for a machine. */
  jobBars() {
    return this.first.flatMap((_, job) => {
      let end = 0;
      return this.range(job).map((op, place) => {
        const machine = this.machineOf(op), start = end;
        end += this.times[machine][op];
        return { job, machine, place, start, end };
      });
    });
  }

  /** Job and machine of an action that starts an operation. */
  decode(action, op) {
    if (!this.isFlexible) return { job: action - 1, machine: null };
    const index = action - 1;
    return { job: Math.floor(index / this.numMachines), machine: index % this.numMachines, op };
  }

  /** The schedule of the first actions, the clock, and what each job does next. */
  partial(actions) {
    const state = {
      bars: [],
      clock: 0,
      next: [...this.first],
      jobReady: this.first.map(() => 0),
      machineReady: this.times.map(() => 0),
    };
    for (const action of actions) {
      if (action === 0) {
        const ends = state.bars.map((bar) => bar.end).filter((end) => end > state.clock);
        state.clock = ends.length ? Math.min(...ends) : state.clock;
        continue;
      }
      const bar = this.bar(state, action);
      if (!bar) continue;
      state.bars.push(bar);
      state.clock = bar.start;
      state.next[bar.job] += 1;
      state.jobReady[bar.job] = bar.end;
      state.machineReady[bar.machine] = bar.end;
    }
    return state;
  }

  /** The bar that an action adds to a partial schedule; null if it adds none. */
  bar(state, action) {
    if (action === 0) return null;
    const { job, machine: given } = this.decode(action);
    const op = state.next[job];
    if (op === undefined || op > this.last[job]) return null;
    const machine = given ?? this.machineOf(op);
    const start = Math.max(state.clock, state.jobReady[job], state.machineReady[machine]);
    const place = op - this.first[job];
    return { job, machine, place, start, end: start + this.times[machine][op] };
  }

  actionTitle(action) {
    if (action === 0) return "Wait";
    const { job, machine } = this.decode(action);
    return machine === null ? `Job ${job}` : `Job ${job} on machine ${machine}`;
  }

  measure(actions) {
    const { bars } = this.partial(actions);
    return { title: "makespan", value: Math.max(0, ...bars.map((bar) => bar.end)) };
  }
}
