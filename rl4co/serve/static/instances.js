// Changes of instances: nodes and jobs that are added, moved, removed and edited. Instances are
// never changed in place; every function returns a new one.

/** Keys that are wrong once an instance was edited. */
const STALE = ["best_known", "best_solution", "nodes", "comment"];
/** Keys that coordinates determine, unless a file says otherwise. */
const MATRICES = ["cost_matrix", "duration_matrix"];

const TITLES = {
  demand: ["demand"], backhaul_demand: ["backhaul"], prizes: ["prize"],
  time_windows: ["opens", "closes"], service_times: ["service"], capacity: ["Capacity"],
  max_length: ["Longest route"], facilities: ["Facilities"], open_routes: ["Open routes"], machines: ["Machines"],
};

const tidy = (value) => Number(value.toPrecision(6));

/** Whether nodes can be moved: there are coordinates. */
export const isEditable = (instance) => Boolean(instance.coordinates);

function copyOf(instance, keepsMatrices = true) {
  const copy = structuredClone(instance);
  for (const key of keepsMatrices ? STALE : [...STALE, ...MATRICES]) delete copy[key];
  return copy;
}

/** Keys of the instance with one entry per node, apart from coordinates. */
const nodeKeys = (instance, keys) =>
  keys.filter(({ name, shape }) => shape.startsWith("N") && name in instance && name !== "coordinates");

export function moveNode(instance, index, x, y) {
  const copy = copyOf(instance, false);
  copy.coordinates[index] = [tidy(x), tidy(y)];
  return copy;
}

/** A new node at a place, otherwise like the last one; problems with pairs get two. */
export function addNode(instance, keys, x, y) {
  const copy = copyOf(instance, false);
  const number = copy.coordinates.length;
  const places = [[tidy(x), tidy(y)]];
  if (copy.pairs) {
    const side = Math.max(...copy.coordinates.flat()) || 1;
    const shift = 0.08 * side;
    places.push([tidy(x + shift <= side ? x + shift : x - shift), tidy(y)]);
    copy.pairs.push([number, number + 1]);
  }
  for (const place of places) {
    copy.coordinates.push(place);
    for (const { name } of nodeKeys(copy, keys)) copy[name].push(structuredClone(copy[name].at(-1)));
  }
  if (copy.time_windows) copy.time_windows[number] = widestWindow(copy, number);
  return copy;
}

/** The widest window that still lets a vehicle return: that of the depot, cut by the way back. */
function widestWindow({ time_windows: windows, coordinates, service_times: services }, number) {
  const [opens, closes] = windows[0];
  const [[x, y], [a, b]] = [coordinates[number], coordinates[0]];
  const back = 1.02 * Math.hypot(x - a, y - b) + (services ? services[number] : 0);
  return [opens, tidy(Math.max(opens, closes - back))];
}

/** Without a node, and the other one of its pair; `first` is the first node that may go. */
export function removeNode(instance, keys, index, first) {
  const gone = (instance.pairs || []).find((pair) => pair.includes(index)) || [index];
  if (index < first || instance.coordinates.length - gone.length < first + 2) return instance;
  const copy = copyOf(instance, false);
  const isKept = (_, i) => !gone.includes(i);
  copy.coordinates = copy.coordinates.filter(isKept);
  for (const { name } of nodeKeys(copy, keys)) copy[name] = copy[name].filter(isKept);
  const renumber = (node) => node - gone.filter((one) => one < node).length;
  if (copy.pairs)
    copy.pairs = copy.pairs.filter((pair) => !pair.includes(index)).map((pair) => pair.map(renumber));
  if (copy.facilities) copy.facilities = Math.min(copy.facilities, copy.coordinates.length);
  return copy;
}

// ---------------------------------------------------------------- table

/** Columns of the table of nodes: `{title, about, read(index), write(index, value)}`. */
export function columnsOf(instance, keys) {
  const places = ["x", "y"].map((title, axis) => ({
    title,
    about: title,
    read: (index) => instance.coordinates[index][axis],
    write: (index, value) =>
      moveNode(instance, index, ...instance.coordinates[index].map((old, k) => (k === axis ? value : old))),
  }));
  const others = nodeKeys(instance, keys).flatMap(({ name, shape, title: about }) => {
    const isPair = shape.includes(" ");
    return (TITLES[name] || [about]).map((title, k) => ({
      title,
      about,
      read: (index) => (isPair ? instance[name][index][k] : instance[name][index]),
      write: (index, value) => {
        const copy = copyOf(instance);
        if (isPair) copy[name][index][k] = value;
        else copy[name][index] = value;
        return copy;
      },
    }));
  });
  return [...places, ...others];
}

/** Numbers and switches of the instance as a whole: `{title, about, value, write(value)}`. */
export function settingsOf(instance, keys) {
  return keys.filter(({ name, shape }) => shape === "" && name in instance).map(({ name, title: about }) => ({
    title: TITLES[name]?.[0] || about,
    about,
    value: instance[name],
    write: (value) => ({ ...copyOf(instance), [name]: value }),
  }));
}

/** The instance with other jobs. */
export const withJobs = (instance, jobs) => ({ ...copyOf(instance), jobs });
