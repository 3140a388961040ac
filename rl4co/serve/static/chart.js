// Cost over time: the best solution of each method so far, as steps.

import { niceStep } from "./gantt.js";
import { format } from "./problems.js";
import { svg } from "./svg.js";

const LEFT = 52, RIGHT = 14, TOP = 12, BOTTOM = 28;

/** Points `{seconds, cost}` of a run: its incumbents, then its result. */
export function pointsOf(run) {
  const points = run.incumbents
    .filter(({ cost }) => Number.isFinite(cost))
    .map(({ seconds, cost }) => ({ seconds, cost }));
  const last = points.at(-1);
  if (run.cost !== null && run.seconds !== null && (!last || last.cost !== run.cost))
    points.push({ seconds: run.seconds, cost: run.cost });
  return points;
}

/** Draws the curves of runs; `known` is a best-known cost, or null. */
export function drawCurves(root, runs, known = null) {
  const { clientWidth: width, clientHeight: height } = root;
  const curves = runs.map(pointsOf);
  const points = curves.flat();
  root.setAttribute("viewBox", `0 0 ${width || 1} ${height || 1}`);
  root.setAttribute("aria-label", describe(runs, curves));
  if (!points.length || !width) return root.replaceChildren();
  const costs = [...points.map((point) => point.cost), ...(known === null ? [] : [known])];
  const longest = Math.max(...points.map((point) => point.seconds), ...runs.map((run) => run.seconds || 0), 0.05);
  let low = Math.min(...costs), high = Math.max(...costs);
  const pad = Math.max((high - low) * 0.12, Math.abs(high) * 0.005, 1e-6);
  [low, high] = [low - pad, high + pad];
  const x = (seconds) => LEFT + ((width - LEFT - RIGHT) * seconds) / (longest * 1.03);
  const y = (cost) => TOP + ((height - TOP - BOTTOM) * (high - cost)) / (high - low);
  const parts = [...yAxis(low, high, y, width), ...xAxis(longest, x, height)];
  if (known !== null)
    parts.push(svg("line", { class: "known", x1: LEFT, x2: width - RIGHT, y1: y(known), y2: y(known) }));
  curves.forEach((curve, i) => parts.push(...drawCurve(curve, runs[i], i, longest, x, y)));
  return root.replaceChildren(...parts);
}

function drawCurve(curve, run, i, longest, x, y) {
  if (!curve.length) return [];
  let d = `M${x(curve[0].seconds)} ${y(curve[0].cost)}`;
  for (const { seconds, cost } of curve.slice(1)) d += `H${x(seconds)}V${y(cost)}`;
  return [
    svg("path", { class: `curve series-${i}`, d: `${d}H${x(longest)}` }),
    ...curve.map(({ seconds, cost }) => svg("circle", { class: `dot series-${i}`, cx: x(seconds), cy: y(cost), r: 3.2 }, [
      svg("title", {}, [`${run.label}: ${format(cost, 4)} after ${format(seconds)} s`]),
    ])),
  ];
}

function yAxis(low, high, y, width) {
  const step = niceStep((high - low) / 4);
  const digits = Math.max(0, Math.ceil(-Math.log10(step)));
  const parts = [];
  for (let cost = Math.ceil(low / step) * step; cost <= high; cost += step) {
    parts.push(svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(cost), y2: y(cost) }));
    parts.push(svg("text", { class: "tick", x: LEFT - 8, y: y(cost), dy: "0.35em", "text-anchor": "end" }, [cost.toFixed(digits)]));
  }
  return parts;
}

function xAxis(longest, x, height) {
  const step = niceStep(longest / 5);
  const parts = [];
  for (let time = 0; time <= longest * 1.02; time += step)
    parts.push(svg("text", { class: "tick", x: x(time), y: height - 8, "text-anchor": "middle" }, [`${format(time)} s`]));
  return parts;
}

function describe(runs, curves) {
  const parts = runs.map((run, i) => {
    const last = curves[i].at(-1);
    return last ? `${run.label} ${format(last.cost, 3)} after ${format(last.seconds)} seconds` : `${run.label} no solution yet`;
  });
  return `Cost over time: ${parts.join("; ")}`;
}
