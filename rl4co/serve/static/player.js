// Playback of how methods solve an instance: one pane per method, one timeline for all of them.

import { GanttDrawing } from "./gantt.js";
import { PlaneDrawing } from "./plane.js";
import { format, kindOf, percent, viewOf } from "./problems.js";
import { html, icon } from "./svg.js";

const MAX_ROWS = 6;
const SPEEDS = [0.25, 0.5, 1, 2, 4, 8];
const PLAY_SECONDS = 9; // a whole playback at speed 1

/** The drawing that fits the kind of the instance. */
export function makeDrawing(container, problem, instance, handlers) {
  const Drawing = kindOf(problem, instance) === "shop" ? GanttDrawing : PlaneDrawing;
  return new Drawing(container, handlers);
}

/** A run before its first event: what a method did on an instance, as far as it is known. */
export const newRun = (label, kind) => ({
  label, kind, decisions: [], incumbents: [], solutions: [], solution: null, cost: null, seconds: null,
  state: "queued", message: null,
});

/** Solutions of a run without decisions, `{seconds, solution}`, in the order in which they were found. */
function solutionsOf({ solutions, solution, seconds }) {
  const isComplete = !solution || solutions.at(-1)?.solution.cost === solution.cost;
  return isComplete ? solutions : [...solutions, { seconds, solution }];
}

/** Number of frames of a run; the first one has no action. */
export function countFrames(run) {
  return 1 + (run.decisions.length || solutionsOf(run).length);
}

/** Frame `k`: the actions so far, the decision that comes next, and what is known about the cost. */
export function frameOf(run, k) {
  if (run.decisions.length) {
    const actions = run.decisions.slice(0, k).map((decision) => decision.action);
    const decision = run.decisions[k] || null;
    return { actions, decision, cost: decision ? null : run.cost, seconds: run.seconds };
  }
  const shown = k > 0 ? solutionsOf(run)[k - 1] : null;
  if (!shown) return { actions: [], decision: null, cost: null, seconds: null };
  return { actions: shown.solution.actions, decision: null, cost: shown.solution.cost, seconds: shown.seconds };
}

/** A player in `container`. `handlers` may have force(run, step, action), forbid(run, step, action)
 * and restore(run); without them the playback only shows. */
export class Player {
  constructor(container, handlers = {}) {
    this.handlers = handlers;
    this.runs = [];
    this.position = 0;
    this.speed = 1;
    this.isPlaying = false;
    this.panes = html("div", { class: "panes" });
    this.timeline = new Timeline(this);
    this.status = html("p", { class: "sr-only", "aria-live": "polite" });
    this.root = html("section", { class: "player", "aria-label": "Playback" },
      this.panes, this.timeline.root, this.status);
    container.replaceChildren(this.root);
    this.root.addEventListener("keydown", (event) => this.pressKey(event));
  }

  /** Shows an instance with runs, from the start. */
  load(problem, instance, runs) {
    this.pause();
    this.view = viewOf(problem, instance);
    this.problem = problem;
    this.instance = instance;
    this.runs = runs;
    this.position = 0;
    this.rebuild();
  }

  /** Draws all panes again, after runs were replaced. */
  rebuild() {
    for (const pane of this.shown || []) pane.drawing.close();
    this.shown = this.runs.map((run) => new Pane(this, run));
    this.panes.replaceChildren(...this.shown.map((pane) => pane.root));
    this.panes.classList.toggle("two", this.runs.length > 1);
    this.refresh();
  }

  /** Last position of the timeline. */
  get end() {
    return Math.max(0, ...this.runs.map((run) => countFrames(run) - 1));
  }

  /** The frame of a run at the position: runs with fewer frames move more slowly, and those
   * without decisions show their first solution at once. */
  indexOf(run) {
    const last = countFrames(run) - 1;
    const first = run.decisions.length ? 0 : Math.min(1, last);
    return this.end ? first + Math.round((this.position * (last - first)) / this.end) : first;
  }

  refresh(animates = false) {
    const longest = Math.max(...this.runs.map((run) => this.longestOf(run)));
    for (const pane of this.shown) pane.show(longest, animates);
    this.timeline.show();
  }

  /** The largest value of all complete solutions of a run, for axes that stay as they are. */
  longestOf(run) {
    const last = this.view.measure(frameOf(run, countFrames(run) - 1).actions).value;
    return Math.max(last, ...run.solutions.map(({ solution }) => solution.cost));
  }

  seek(position, says = true) {
    this.position = Math.max(0, Math.min(this.end, position));
    this.refresh(position > 0);
    if (says) this.announce();
  }

  announce() {
    const run = this.runs.find((one) => one.decisions.length);
    const frame = run && frameOf(run, this.indexOf(run));
    if (!frame) return;
    const { decision } = frame;
    const [best] = decision ? decision.candidates : [];
    this.status.textContent = best
      ? `Step ${this.position + 1}: ${this.view.actionTitle(best[0])} with ${percent(best[1])}`
      : `Complete, cost ${format(frame.cost, 3)}`;
  }

  // ---------------------------------------------------------------- time

  play() {
    if (this.isPlaying) return;
    if (this.position >= this.end) this.position = 0;
    this.isPlaying = true;
    this.timeline.show();
    this.tick();
  }

  pause() {
    this.isPlaying = false;
    clearTimeout(this.timer);
    if (this.timeline) this.timeline.show();
  }

  toggle() {
    if (this.isPlaying) this.pause();
    else this.play();
  }

  /** Waits for one frame, goes to the next one, and stops at the end if no more can come. */
  tick() {
    const step = Math.max(45, Math.min(800, (1000 * PLAY_SECONDS) / Math.max(1, this.end)));
    this.timer = setTimeout(() => {
      const isLive = this.runs.some((run) => run.state === "queued" || run.state === "running");
      if (this.position < this.end) this.seek(this.position + 1, false);
      if (this.position >= this.end && !isLive) this.pause();
      else this.tick();
    }, step / this.speed);
  }

  pressKey(event) {
    const name = event.target.tagName;
    if (name === "INPUT" || name === "SELECT" || (name === "BUTTON" && event.key === " ")) return;
    const moves = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
    if (event.key === " ") this.toggle();
    else if (event.key in moves) {
      this.pause();
      this.seek(this.position + moves[event.key]);
    } else return;
    event.preventDefault();
  }
}

/** One method: its title, its drawing and the probabilities of its next action. */
class Pane {
  constructor(player, run) {
    this.player = player;
    this.run = run;
    this.title = html("h3", {}, run.label);
    this.fact = html("output", { class: "fact" });
    this.stage = html("div", { class: "stage" });
    this.candidates = html("ol", { class: "candidates" });
    this.caption = html("h4", {});
    this.side = html("div", { class: "side" }, this.caption, this.candidates);
    this.restore = html("button", { class: "quiet restore", onclick: () => player.handlers.restore(run) }, "Undo what-if");
    this.restore.hidden = !run.original;
    this.root = html("article", { class: "pane", "aria-label": run.label },
      html("header", {}, this.title, this.restore, this.fact),
      html("div", { class: "body" }, this.stage, this.side));
    const { force, forbid } = player.handlers;
    const handlers = { pick: force && ((i) => this.choose(force, i)), forbid: forbid && ((i) => this.choose(forbid, i)) };
    this.drawing = makeDrawing(this.stage, player.problem, player.instance, handlers);
    this.drawing.setView(player.view);
  }

  /** Lets the policy continue after an action was forced or forbidden, if it is allowed here. */
  choose(handler, index) {
    const { decision } = this.frame;
    const action = this.player.view.nodeAction ? this.player.view.nodeAction(index) : index;
    if (decision && decision.mask.includes(action)) {
      this.player.pause();
      handler(this.run, this.step, action);
    }
  }

  show(makespan, animates) {
    const { player, run } = this;
    this.step = player.indexOf(run);
    this.frame = { ...frameOf(run, this.step), animates };
    if (this.drawing.setSpan) this.drawing.setSpan(makespan);
    this.drawing.show(this.frame);
    this.showFact();
    this.showCandidates();
  }

  showFact() {
    const { frame, run, player } = this;
    const { title, value } = player.view.measure(frame.actions);
    const number = frame.cost ?? (Number.isNaN(value) ? null : value);
    const isEmpty = !frame.decision && !frame.actions.length;
    const states = { queued: "waiting …", running: "solving …", cancelled: "cancelled", failed: "failed" };
    if (isEmpty) this.fact.replaceChildren(html(run.state === "failed" ? "em" : "span", {}, states[run.state] || ""));
    else this.fact.replaceChildren(`${title} `, html("b", {}, format(number, 3)));
  }

  showCandidates() {
    const { decision } = this.frame;
    if (!this.run.decisions.length) return this.showIncumbents();
    const title = decision ? (decision.forced ? "Given move" : "Next move") : "Complete";
    const count = decision ? `${decision.mask.length} allowed` : `${this.run.decisions.length} decisions`;
    this.caption.replaceChildren(title, html("small", {}, count));
    const allowed = new Set(decision ? decision.mask : []);
    const rows = (decision ? decision.candidates : []).filter(([action]) => allowed.has(action)).slice(0, MAX_ROWS);
    if (decision && !rows.some(([action]) => action === decision.action))
      rows.splice(Math.min(rows.length, MAX_ROWS - 1), 1, [decision.action, decision.probability]);
    this.candidates.replaceChildren(...rows.map((row) => this.row(row, decision)));
  }

  /** The solutions that a method without decisions found, up to the one that is shown. */
  showIncumbents() {
    const found = solutionsOf(this.run);
    this.caption.replaceChildren("Solutions", html("small", {}, found.length ? `${found.length} improving` : ""));
    const first = Math.max(0, Math.min(this.step - 3, found.length - MAX_ROWS));
    this.candidates.replaceChildren(...found.slice(first, first + MAX_ROWS).map(({ solution: { cost }, seconds }, k) =>
      html("li", { class: `incumbent${first + k + 1 === this.step ? " chosen" : ""}` },
        html("span", { class: "name" }, format(cost, 4)),
        html("span", { class: "seconds" }, seconds === null ? "" : `${format(seconds)} s`))));
  }

  row([action, chance], decision) {
    const { view, handlers } = this.player;
    const title = view.actionTitle(action);
    const isChosen = action === decision.action;
    const button = (name, words, handler) => handler && decision.mask.includes(action)
      ? html("button", {
        class: "icon-button", title: `${words} ${title}`, "aria-label": `${words} ${title}`,
        onclick: () => { this.player.pause(); handler(this.run, this.step, action); },
      }, icon(name)) : null;
    return html("li", { class: isChosen ? "chosen" : "", style: `--p:${chance.toFixed(3)}` },
      html("span", { class: "name" }, title),
      html("span", { class: "value" }, percent(chance)),
      button("go", "Force", handlers.force), button("forbid", "Forbid", handlers.forbid));
  }
}

/** Buttons, slider and the strip that shows how sure the policy was at each step. */
class Timeline {
  constructor(player) {
    this.player = player;
    const button = (name, title, action) =>
      html("button", { class: "icon-button", title, "aria-label": title, onclick: action }, icon(name));
    const jump = (step) => () => { player.pause(); player.seek(player.position + step); };
    this.toggle = button("play", "Play", () => player.toggle());
    this.toggle.classList.add("primary");
    this.slider = html("input", {
      type: "range", min: 0, value: 0, step: 1, "aria-label": "Step",
      oninput: () => {
        const step = Number(this.slider.value); // before the pause, which shows the old step
        player.pause();
        player.seek(step);
      },
    });
    this.strip = html("div", { class: "strip", title: "Probability of the chosen move at each step" });
    this.count = html("output", { class: "count" });
    this.speed = html("select", { "aria-label": "Speed", onchange: () => { player.speed = Number(this.speed.value); } },
      ...SPEEDS.map((value) => html("option", { value, selected: value === 1 }, `${value}×`)));
    this.root = html("div", { class: "timeline", role: "group", "aria-label": "Timeline" },
      html("div", { class: "transport" }, button("start", "To the start", jump(-Infinity)),
        button("back", "One step back", jump(-1)), this.toggle,
        button("forward", "One step forward", jump(1)), button("end", "To the end", jump(Infinity))),
      html("div", { class: "track" }, this.strip, this.slider), this.count, this.speed);
  }

  show() {
    const { player } = this;
    const { end, position, isPlaying } = player;
    this.slider.max = end;
    this.slider.value = position;
    this.slider.style.setProperty("--done", end ? position / end : 0);
    this.count.replaceChildren(html("b", {}, String(position)), ` / ${end}`);
    const title = isPlaying ? "Pause" : "Play";
    if (this.toggle.title !== title) {
      this.toggle.title = title;
      this.toggle.setAttribute("aria-label", title);
      this.toggle.replaceChildren(icon(isPlaying ? "pause" : "play"));
    }
    this.showStrip();
  }

  /** One bar per decision of the first run that has any: the probability of the chosen action. */
  showStrip() {
    const run = this.player.runs.find((one) => one.decisions.length);
    const decisions = run ? run.decisions : [];
    if (this.strip.childElementCount !== decisions.length || this.drawn !== run) {
      this.drawn = run;
      this.strip.replaceChildren(...decisions.map(({ probability }) =>
        html("i", { style: `--p:${probability.toFixed(3)}` })));
    }
    const index = run ? this.player.indexOf(run) : 0;
    for (const [k, bar] of [...this.strip.children].entries()) bar.classList.toggle("done", k < index);
  }
}

/** Plays a trace in `container` without a server: `{problem, instance, runs}` with runs as
 * `{label, kind, decisions, incumbents, solution, cost, seconds}`. Returns the player. */
export function playTrace(container, trace, { autoplay = true } = {}) {
  const player = new Player(container);
  const runs = trace.runs.map((run) => ({
    ...newRun(run.label, run.kind), ...run, cost: run.cost ?? run.solution?.cost ?? null, state: "done",
  }));
  player.load(trace.problem, trace.instance, runs);
  if (autoplay) player.play();
  return player;
}
