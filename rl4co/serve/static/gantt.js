// Drawing of schedules: one row per machine, one bar per operation, the next operations as outlines.

import { format, percent } from "./problems.js";
import { hue, svg } from "./svg.js";

const LEFT = 44, RIGHT = 16, TOP = 14, BOTTOM = 30;

/** A drawing in `container`; `handlers` may have pick(action) and forbid(action). */
export class GanttDrawing {
  constructor(container, handlers = {}) {
    this.handlers = handlers;
    this.root = svg("svg", { class: "drawing gantt", role: "group" });
    container.replaceChildren(this.root);
    this.observer = new ResizeObserver(() => this.frame && this.show(this.frame));
    this.observer.observe(this.root);
    this.root.addEventListener("click", (event) => this.press(event, event.shiftKey));
    this.root.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== "x") return;
      this.press(event, event.key === "x");
      event.preventDefault();
    });
  }

  close() {
    this.observer.disconnect();
  }

  setView(view) {
    this.view = view;
    this.span = null;
    this.root.setAttribute("aria-label", `Schedule of ${view.numJobs} jobs on ${view.numMachines} machines`);
  }

  /** Fixes the time axis, so that bars stay in place while the schedule grows. */
  setSpan(makespan) {
    this.span = makespan;
  }

  press(event, forbids) {
    const bar = event.target.closest("[data-action]");
    const handler = forbids ? this.handlers.forbid : this.handlers.pick;
    if (bar && handler) handler(Number(bar.dataset.action));
  }

  show(frame) {
    this.frame = frame;
    const { clientWidth: width, clientHeight: height } = this.root;
    if (!width || !height || !this.view) return;
    this.root.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.width = width;
    if (frame.isPreview) return this.showJobs(height);
    const partial = this.view.partial(frame.actions);
    const makespan = Math.max(0, ...partial.bars.map((bar) => bar.end));
    this.layOut(height, Math.max(this.span || 0, makespan), this.view.numMachines);
    const bars = partial.bars.map((bar) => this.bar(bar, { class: "bar", style: hue(bar.job) }));
    return this.root.replaceChildren(
      this.axis("M"), ...bars, ...this.candidates(partial, frame), this.clock(partial, makespan, frame),
    );
  }

  /** Before anything is scheduled: one row per job, its operations one after the other. */
  showJobs(height) {
    const bars = this.view.jobBars();
    this.layOut(height, Math.max(...bars.map((bar) => bar.end)), this.view.numJobs);
    this.root.replaceChildren(this.axis("J"), ...bars.map((bar) =>
      this.bar({ ...bar, row: bar.job }, { class: "bar", style: hue(bar.job) }, `M${bar.machine}`)));
  }

  layOut(height, end, numRows) {
    this.end = Math.max(end, 1e-9) * 1.04;
    this.row = Math.min(96, (height - TOP - BOTTOM) / numRows);
    this.numRows = numRows;
    this.bottom = TOP + this.row * numRows;
  }

  x(time) {
    return LEFT + ((this.width - LEFT - RIGHT) * time) / this.end;
  }

  axis(letter) {
    const parts = [];
    for (let row = 0; row < this.numRows; row++) {
      const y = TOP + this.row * row;
      parts.push(svg("rect", {
        class: "lane", x: LEFT, y: y + 2, width: this.width - LEFT - RIGHT, height: Math.max(1, this.row - 4), rx: 6,
      }));
      parts.push(svg("text", { class: "tick", x: LEFT - 10, y: y + this.row / 2, dy: "0.35em", "text-anchor": "end" }, [`${letter}${row}`]));
    }
    const step = niceStep(this.end / Math.max(3, this.width / 110));
    for (let time = 0; time <= this.end; time += step) {
      parts.push(svg("line", { class: "grid", x1: this.x(time), x2: this.x(time), y1: TOP, y2: this.bottom }));
      parts.push(svg("text", { class: "tick", x: this.x(time), y: this.bottom + 17, "text-anchor": "middle" }, [format(time)]));
    }
    return svg("g", { class: "axis" }, parts);
  }

  bar({ job, machine, place, start, end, row = machine }, attributes, label = null) {
    const x = this.x(start), width = Math.max(2, this.x(end) - x - 1.5);
    const y = TOP + this.row * row + 5, height = Math.max(3, this.row - 10);
    const name = `Job ${job}, operation ${place}, machine ${machine}, ${format(start)} to ${format(end)}`;
    const children = [
      svg("title", {}, [label ? `${name}, ${label}` : name]),
      svg("rect", { x, y, width, height, rx: Math.min(5, width / 3) }),
    ];
    const text = label || `J${job}`;
    if (width > 8 * text.length + 4 && height > 13)
      children.push(svg("text", { x: x + width / 2, y: y + height / 2, dy: "0.35em" }, [text]));
    return svg("g", attributes, children);
  }

  candidates(partial, { decision }) {
    const shown = [];
    for (const [action, chance] of decision ? decision.candidates : []) {
      const bar = this.view.bar(partial, action);
      if (!bar) continue;
      shown.push(this.bar(bar, {
        class: `ghost${action === decision.action ? " chosen" : ""}`,
        style: `--p:${chance.toFixed(3)};${hue(bar.job)}`, "data-action": action, tabindex: 0,
        role: "button", "aria-label": `${this.view.actionTitle(action)}, ${percent(chance)}`,
      }, `J${bar.job} ${percent(chance)}`));
    }
    return shown;
  }

  /** The clock while operations are chosen, the makespan at the end. */
  clock(partial, makespan, { decision }) {
    const x = this.x(decision ? partial.clock : makespan);
    const line = svg("line", { x1: x, x2: x, y1: TOP - 6, y2: this.bottom + 4 });
    return svg("g", { class: decision ? "clock" : "clock final" }, [line]);
  }
}

/** The smallest of 1, 2, 5, 10, ... that is at least `value`. */
export function niceStep(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1e-12)));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= value * 0.999);
}
