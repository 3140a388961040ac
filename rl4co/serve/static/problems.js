// Problems as the page sees them: nodes of an instance, routes and schedules of actions.

/** Kind of drawing for an instance: "tour", "routes", "selection" or "shop". */
export function kindOf(problem, instance) {
  if (instance.jobs) return "shop";
  if (instance.facilities !== undefined) return "selection";
  return problem === "tsp" || problem === "atsp" ? "tour" : "routes";
}

const ROUNDINGS = {
  nearest: Math.round,
  up: Math.ceil,
  down: Math.floor,
  one_decimal: (value) => Math.trunc(10 * value) / 10,
};

/** A number with at most `digits` decimals, without trailing zeros; infinity for null. */
export function format(value, digits = 2) {
  if (value === null || value === undefined) return "–";
  return String(Number(value.toFixed(Math.abs(value) >= 1000 ? 0 : digits)));
}

export const percent = (value) =>
  value > 0 && value < 0.01 ? "< 1 %" : `${Math.round(100 * value)} %`;

/** The view of an instance: how to draw it and how to read actions. */
export function viewOf(problem, instance) {
  const views = { tour: TourView, routes: RoutesView, selection: SelectionView, shop: ShopView };
  return new views[kindOf(problem, instance)](problem, instance);
}

/** Places in the plane; instances that have only a matrix get a circle. */
function placesOf({ coordinates, lat, lon, cost_matrix: matrix }) {
  if (coordinates) return coordinates;
  if (lat) return lat.map((degrees, i) => [lon[i], degrees]);
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
    this.nodes = placesOf(instance).map(([x, y], index) => ({
      index, x, y, role: "customer", title: `Node ${index}`, size: 1,
    }));
    this.matrix = instance.cost_matrix;
    this.round = ROUNDINGS[instance.rounding] || ((value) => value);
  }

  /** Corners of the area to draw: the square that instances are drawn from, if it holds all nodes. */
  get bounds() {
    for (const side of [1, 100])
      if (this.nodes.every(({ x, y }) => x >= 0 && x <= side && y >= 0 && y <= side)) return [0, 0, side, side];
    const xs = this.nodes.map((node) => node.x), ys = this.nodes.map((node) => node.y);
    const low = [Math.min(...xs), Math.min(...ys)], high = [Math.max(...xs), Math.max(...ys)];
    return [...low, ...high.map((value, axis) => Math.max(value, low[axis] + 1e-9))];
  }

  distance(i, j) {
    if (this.matrix) return this.matrix[i][j];
    if (this.instance.lat) return NaN; // great circles are left to the service
    return this.round(Math.hypot(this.nodes[i].x - this.nodes[j].x, this.nodes[i].y - this.nodes[j].y));
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
    this.isOpen = Boolean(instance.open_routes);
    this.numCustomers = this.nodes.length - 1;
    const amounts = this.amounts();
    const largest = Math.max(...amounts.map(Math.abs), 1e-9);
    for (const node of this.nodes.slice(1)) {
      node.title = `Customer ${node.index}`;
      node.size = amounts.length ? Math.abs(amounts[node.index]) / largest : 0.5;
      if (instance.backhaul_demand && instance.backhaul_demand[node.index] > 0) {
        node.role = "backhaul";
        node.title = `Backhaul ${node.index}`;
      }
    }
    this.links = instance.pairs || [];
    for (const [pickup, delivery] of this.links) {
      Object.assign(this.nodes[pickup], { role: "pickup", title: `Pickup ${pickup}` });
      Object.assign(this.nodes[delivery], { role: "delivery", title: `Delivery ${delivery}` });
    }
    this.markWindows();
  }

  /** What nodes differ in by size: demands or prizes. */
  amounts() {
    const { demand, prizes, backhaul_demand: backhauls } = this.instance;
    if (demand && backhauls) return demand.map((value, i) => value + backhauls[i]);
    return demand || backhauls || prizes || [];
  }

  /** Time windows as parts of the day that ends when the depot closes. */
  markWindows() {
    const windows = this.instance.time_windows;
    if (!windows) return;
    const horizon = Math.max(windows[0][1], 1e-9);
    for (const node of this.nodes.slice(1))
      node.window = windows[node.index].map((time) => Math.min(1, time / horizon));
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
    const { prizes } = this.instance;
    if (!prizes) return { title: "length", value: this.pathLength(paths) };
    const value = [...visited].reduce((sum, node) => sum + prizes[node], 0);
    return { title: "prize", value };
  }
}

/** Locations of which some are chosen, and serve the others. */
class SelectionView extends PlaneView {
  constructor(problem, instance) {
    super(problem, instance);
    for (const node of this.nodes) node.title = `Location ${node.index}`;
  }

  partial(actions) {
    const chosen = actions.slice(0, this.instance.facilities);
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
  constructor(problem, { jobs, machines }) {
    this.problem = problem;
    // Operations as lists of [machine, time], one pair for each machine that can run it.
    this.jobs = jobs.map((job) => job.map((operation) => (Array.isArray(operation[0]) ? operation : [operation])));
    this.numJobs = jobs.length;
    this.numMachines = machines ?? 1 + Math.max(...this.jobs.flat(2).map(([machine]) => machine));
    this.isFlexible = problem === "fjsp";
  }

  /** Bars of all operations if jobs never waited for a machine. */
  jobBars() {
    return this.jobs.flatMap((job, number) => {
      let end = 0;
      return job.map(([[machine, time]], place) => {
        const start = end;
        end += time;
        return { job: number, machine, place, start, end };
      });
    });
  }

  /** Job and machine of an action that starts an operation; the machine is null if there is one. */
  decode(action) {
    if (!this.isFlexible) return { job: action - 1, machine: null };
    return { job: Math.floor((action - 1) / this.numMachines), machine: (action - 1) % this.numMachines };
  }

  /** The schedule of the first actions, the clock, and what each job does next. */
  partial(actions) {
    const state = {
      bars: [],
      clock: 0,
      next: this.jobs.map(() => 0),
      jobReady: this.jobs.map(() => 0),
      machineReady: Array(this.numMachines).fill(0),
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
    const { job, machine: named } = this.decode(action);
    const place = state.next[job];
    const pairs = this.jobs[job]?.[place];
    const pair = pairs && (named === null ? pairs[0] : pairs.find(([machine]) => machine === named));
    if (!pair) return null;
    const [machine, time] = pair;
    const start = Math.max(state.clock, state.jobReady[job], state.machineReady[machine]);
    return { job, machine, place, start, end: start + time };
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
