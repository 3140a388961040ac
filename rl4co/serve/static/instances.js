// Changes of instances: nodes and jobs that are added, moved, removed and edited. Instances are
// never changed in place; every function returns a new one.

import { kindOf, scalar } from "./problems.js";

/** Keys that follow from coordinates and are wrong once a node moved. */
const DERIVED = ["cost_matrix", "duration_matrix", "orig_distances", "distances", "chosen"];
/** Keys that are not shown, because other keys determine them. */
const HIDDEN = new Set([...DERIVED, "capacity_original", "vehicle_capacity", "pad_mask"]);
/** Keys that are divided by the capacity. */
const SCALED = ["demand", "demand_linehaul", "demand_backhaul"];

const TITLES = {
  demand: ["demand"], demand_linehaul: ["delivery"], demand_backhaul: ["backhaul"],
  prize: ["prize"], time_windows: ["opens", "closes"], durations: ["service"],
  service_time: ["service"], capacity: ["Capacity"], max_length: ["Longest tour"],
  to_choose: ["Facilities"], open_route: ["Open routes"], distance_limit: ["Longest route"],
  speed: ["Speed"], backhaul_class: ["Backhaul class"], locs: ["x", "y"],
};

const titlesOf = (key, width) =>
  TITLES[key] || Array.from({ length: width }, (_, k) => key.replaceAll("_", " ") + (k ? ` ${k + 1}` : ""));

const hasDepot = (instance) => kindOf(instance) === "routes";
const isSeparate = (instance) => Boolean(instance.depot); // the depot has a key of its own
const capacityKey = (instance) => ["capacity", "capacity_original"].find((key) => key in instance);
const unit = (instance, key) =>
  SCALED.includes(key) && capacityKey(instance) ? scalar(instance[capacityKey(instance)]) : 1;
const tidy = (value) => (value === null ? null : Number(value.toPrecision(7)));

/** Number of nodes, the depot included. */
export const countNodes = (instance) => instance.locs.length + (isSeparate(instance) ? 1 : 0);

/** Whether nodes can be moved: there are coordinates. */
export const isEditable = (instance) => Boolean(instance.locs);

/** Keys with one entry per node, each with its offset: 1 if the depot has no entry. */
function nodeKeys(instance, axes) {
  return Object.entries(axes || {})
    .filter(([key]) => Array.isArray(instance[key]) && key !== "depot" && !DERIVED.includes(key))
    .map(([key, words]) => [key, words.split(" ")])
    .filter(([, [first]]) => first === "n" || first === "n+1")
    .map(([key, words]) => ({
      key, offset: words[0] === "n" && hasDepot(instance) ? 1 : 0, width: Number(words[1] || 1),
      isPair: words.length > 1,
    }));
}

function changed(instance) {
  const copy = structuredClone(instance);
  for (const key of DERIVED) delete copy[key];
  return copy;
}

export function moveNode(instance, index, x, y) {
  const copy = changed(instance);
  const place = [tidy(x), tidy(y)];
  if (isSeparate(copy) && index === 0) copy.depot = place;
  else copy.locs[index - (isSeparate(copy) ? 1 : 0)] = place;
  return copy;
}

/** A new customer at a place, otherwise like the last one; problems with pairs get two. */
export function addNode(problem, instance, axes, x, y) {
  const copy = changed(instance);
  if (problem === "pdp") {
    const half = copy.locs.length / 2;
    const shift = x + 0.08 <= 1 ? 0.08 : -0.08;
    copy.locs.splice(half, 0, [tidy(x), tidy(y)]);
    copy.locs.push([tidy(x + shift), tidy(y)]);
    return copy;
  }
  const keys = nodeKeys(copy, axes);
  if (!keys.some(({ key }) => key === "locs")) keys.push({ key: "locs" });
  for (const { key } of keys)
    copy[key].push(key === "locs" ? [tidy(x), tidy(y)] : structuredClone(copy[key].at(-1)));
  if (copy.time_windows && copy.time_windows[0]) copy.time_windows.splice(-1, 1, widest(copy));
  return copy;
}

/** The widest window that still lets a vehicle return: that of the depot, cut by the way back. */
function widest(instance) {
  const [opens, closes] = instance.time_windows[0];
  if (closes === null) return [opens, null];
  const [x, y] = instance.locs.at(-1);
  const [a, b] = instance.depot || instance.locs[0];
  const back = Math.hypot(x - a, y - b) / (scalar(instance.speed) || 1);
  const service = (instance.durations || instance.service_time || [0]).at(-1);
  return [opens, tidy(Math.max(opens, closes - service - 1.02 * back))];
}

/** Without a node; the depot and the last customers stay. */
export function removeNode(problem, instance, axes, index) {
  const customers = countNodes(instance) - (hasDepot(instance) ? 1 : 0);
  const least = problem === "pdp" ? 4 : 2;
  if (customers <= least || (hasDepot(instance) && index === 0)) return instance;
  const copy = changed(instance);
  if (problem === "pdp") {
    const half = copy.locs.length / 2;
    const place = (index - 1) % half;
    copy.locs.splice(half + place, 1);
    copy.locs.splice(place, 1);
    return copy;
  }
  for (const { key, offset } of nodeKeys(copy, axes)) copy[key].splice(index - offset, 1);
  if (copy.to_choose !== undefined && scalar(copy.to_choose) > copy.locs.length)
    copy.to_choose = copy.locs.length;
  return copy;
}

// ---------------------------------------------------------------- table

/** Columns of the table of nodes: `{title, read(index), write(index, value), step}`. */
export function columnsOf(instance, axes) {
  const columns = ["x", "y"].map((title, axis) => ({
    title,
    read: (index) => placeOf(instance, index)[axis],
    write: (index, value) => {
      const place = [...placeOf(instance, index)];
      place[axis] = value;
      return moveNode(instance, index, ...place);
    },
  }));
  for (const { key, offset, width, isPair } of nodeKeys(instance, axes)) {
    if (key === "locs" || HIDDEN.has(key)) continue;
    titlesOf(key, width).forEach((title, k) => columns.push({
      title,
      read: (index) => {
        if (index < offset || (index === 0 && SCALED.includes(key))) return undefined;
        const entry = instance[key][index - offset];
        const value = isPair ? entry[k] : entry;
        return value === null ? null : tidy(value * unit(instance, key));
      },
      write: (index, value) => {
        const copy = structuredClone(instance);
        const entry = value === null ? null : value / unit(instance, key);
        if (isPair) copy[key][index - offset][k] = entry;
        else copy[key][index - offset] = entry;
        return copy;
      },
    }));
  }
  return columns;
}

function placeOf(instance, index) {
  if (!isSeparate(instance)) return instance.locs[index];
  return index === 0 ? instance.depot : instance.locs[index - 1];
}

/** Numbers and switches of the instance as a whole: `{title, value, write(value)}`. */
export function settingsOf(instance) {
  const settings = [];
  const key = capacityKey(instance);
  if (key && SCALED.some((name) => name in instance))
    settings.push({ title: "Capacity", value: scalar(instance[key]), write: (value) => rescale(instance, key, value) });
  for (const [name, value] of Object.entries(instance)) {
    if (name === key || HIDDEN.has(name) || typeof scalar(value) === "object" && scalar(value) !== null) continue;
    if (Array.isArray(value) && value.length !== 1) continue;
    settings.push({
      title: titlesOf(name, 1)[0],
      value: scalar(value),
      write: (next) => ({ ...structuredClone(instance), [name]: Array.isArray(value) ? [next] : next }),
    });
  }
  return settings;
}

/** Another capacity; demands keep their units. */
function rescale(instance, key, capacity) {
  const copy = structuredClone(instance);
  const factor = scalar(instance[key]) / capacity;
  for (const name of SCALED.filter((one) => one in copy))
    copy[name] = copy[name].map((value) => value * factor);
  copy[key] = Array.isArray(copy[key]) ? [capacity] : capacity;
  return copy;
}

// ---------------------------------------------------------------- job shops

/** Jobs as lists of operations `{machine, time}`; only where each operation has one machine. */
export function jobsOf(instance) {
  return instance.start_op_per_job.map((first, job) => {
    const count = instance.end_op_per_job[job] - first + 1;
    return Array.from({ length: count }, (_, k) => {
      const machine = instance.proc_times.findIndex((row) => row[first + k] > 0);
      return { machine, time: instance.proc_times[machine]?.[first + k] ?? 0 };
    });
  });
}

/** The instance of jobs as `jobsOf` returns them. */
export function shopOf(jobs, numMachines) {
  const operations = jobs.flat();
  const firsts = jobs.map((_, job) => jobs.slice(0, job).flat().length);
  return {
    start_op_per_job: firsts,
    end_op_per_job: firsts.map((first, job) => first + jobs[job].length - 1),
    pad_mask: operations.map(() => false),
    proc_times: Array.from({ length: numMachines }, (_, machine) =>
      operations.map((operation) => (operation.machine === machine ? operation.time : 0))),
  };
}
