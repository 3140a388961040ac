// The page: chooses a problem and methods, and connects editor, service, player and results.

import { cancel, download, follow, get, post, saveFile } from "./api.js";
import { drawCurves } from "./chart.js";
import { Editor } from "./editor.js";
import { newRun, Player } from "./player.js";
import { format } from "./problems.js";
import { html } from "./svg.js";

const $ = (id) => document.getElementById(id);
const MAX_METHODS = 2;
const PROPER_NAMES = {
  cpsat: "CP-SAT", glop: "GLOP", gurobi: "Gurobi", highs: "HiGHS", ils: "Iterated local search", lkh: "LKH",
  ortools: "OR-Tools", pyvrp: "PyVRP", scip: "SCIP",
};

class App {
  constructor() {
    this.runs = [];
    this.instance = null;
    this.bestKnown = null;
    this.player = new Player($("player"), {
      force: (run, step, action) => this.decide(run, step, action, []),
      forbid: (run, step, action) => this.decide(run, step, null, [action]),
      restore: (run) => this.replaceRun(run, run.original),
    });
    this.editor = new Editor($("editor"), $("table"), (instance) => this.edited(instance));
    this.connect();
  }

  connect() {
    const guard = (action) => () => this.attempt(action);
    $("problem").addEventListener("change", guard(() => this.chooseProblem()));
    $("random").addEventListener("submit", (event) => {
      event.preventDefault();
      this.attempt(() => this.drawRandom());
    });
    $("dice").addEventListener("click", guard(() => {
      $("seed").value = Math.floor(Math.random() * 100000);
      return this.drawRandom();
    }));
    $("file").addEventListener("change", guard(() => this.load($("file").files[0])));
    $("save").addEventListener("click", () => this.save());
    $("solve").addEventListener("submit", (event) => {
      event.preventDefault();
      this.attempt(() => (this.job ? this.cancel() : this.solve()));
    });
    $("add-method").addEventListener("click", () => this.addMethod());
    for (const tab of ["edit", "watch"]) $(`tab-${tab}`).addEventListener("click", () => this.showTab(tab));
    $("tabs").addEventListener("keydown", (event) => {
      if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
      const tab = event.target.id === "tab-edit" ? "watch" : "edit";
      if ($(`tab-${tab}`).disabled) return;
      this.showTab(tab);
      $(`tab-${tab}`).focus();
    });
    $("dismiss").addEventListener("click", () => this.showError(null));
    document.addEventListener("dragover", (event) => event.preventDefault());
    document.addEventListener("drop", (event) => {
      event.preventDefault();
      const file = event.dataTransfer.files[0];
      if (file) this.attempt(() => this.load(file));
    });
    new ResizeObserver(() => this.showCurves()).observe($("curve"));
  }

  async start() {
    const [problems, models] = await Promise.all([get("api/problems"), get("api/models")]);
    this.problems = problems;
    this.models = models;
    const areas = new Map();
    for (const problem of problems) {
      if (!areas.has(problem.area)) areas.set(problem.area, []);
      areas.get(problem.area).push(problem);
    }
    $("problem").replaceChildren(...[...areas].map(([area, members]) =>
      html("optgroup", { label: capitalized(area) }, ...members.map(({ name, title }) => html("option", { value: name }, title)))));
    await this.chooseProblem();
  }

  /** Runs an action of the user; what goes wrong is shown, with the words of the service. */
  async attempt(action) {
    this.showError(null);
    try {
      await action();
    } catch (error) {
      this.showError(error);
    }
  }

  showError(error) {
    $("error").hidden = !error;
    for (const field of document.querySelectorAll("[aria-invalid]")) field.removeAttribute("aria-invalid");
    if (!error) return;
    $("error-text").textContent = error.message;
    const field = error.field && $(String(error.field).split(".").at(-1));
    if (field) field.setAttribute("aria-invalid", "true");
  }

  // ---------------------------------------------------------------- instance

  async chooseProblem(name = $("problem").value) {
    this.problem = this.problems.find((problem) => problem.name === name);
    $("problem").value = name;
    const { size_range: range, default_size: size, size_name: title, options } = this.problem;
    $("size-title").textContent = capitalized(title);
    Object.assign($("size"), { min: range[0], max: range[1], value: size });
    $("options").replaceChildren(...options.map((option) => this.option(option)));
    this.solvers = await get(`api/solvers?problem=${encodeURIComponent(name)}`);
    $("methods").replaceChildren();
    this.addMethod();
    await this.drawRandom();
  }

  option({ name, title, kind, values, minimum, maximum, default: value }) {
    const attributes = { name, id: name };
    const field = kind === "choice"
      ? html("select", attributes, ...values.map((one) => html("option", { value: one, selected: one === value }, one)))
      : html("input", { ...attributes, type: "number", min: minimum, max: maximum, value });
    return html("label", { class: "field" }, html("span", {}, title), field);
  }

  options() {
    const fields = [...$("options").querySelectorAll("[name]")];
    return Object.fromEntries(fields
      .filter((field) => field.value !== "")
      .map((field) => [field.name, field.type === "number" ? Number(field.value) : field.value]));
  }

  async drawRandom() {
    const body = {
      problem: this.problem.name, size: Number($("size").value), seed: Number($("seed").value), options: this.options(),
    };
    this.setInstance(await post("api/instances/random", body));
  }

  setInstance({ instance, best_known: bestKnown = null, notes = [] }) {
    this.instance = instance;
    this.bestKnown = bestKnown;
    $("notes").textContent = [notes].flat().join(" ");
    this.editor.load(this.problem.name, instance, this.problem.keys);
    this.clearRuns();
  }

  edited(instance) {
    this.instance = instance;
    this.bestKnown = null;
    this.clearRuns();
  }

  async load(file) {
    if (!file) return;
    const isText = !file.name.toLowerCase().endsWith(".gz");
    const content = isText ? await file.text() : toBase64(await file.arrayBuffer());
    const encoding = isText ? "text" : "base64";
    const answer = await post("api/instances/parse", { filename: file.name, content, encoding });
    $("file").value = "";
    if (!this.problems.some(({ name }) => name === answer.problem))
      throw new Error(`${file.name} is an instance of ${answer.problem}, which the page does not draw; use rl4co solve`);
    if (answer.problem !== this.problem.name) await this.chooseProblem(answer.problem);
    this.setInstance(answer);
  }

  /** Saves the instance as JSON, which `rl4co solve` reads. */
  save() {
    const text = JSON.stringify({ problem: this.problem.name, ...this.instance });
    saveFile(new Blob([text], { type: "application/json" }), `${this.instance.name || this.problem.name}.json`);
  }

  // ---------------------------------------------------------------- methods

  addMethod() {
    const models = this.models.filter(({ problem, problems = [] }) => problem === this.problem.name || problems.includes(this.problem.name));
    const isSecond = $("methods").childElementCount > 0;
    const options = models.map(({ name }) => html("option", { value: `model:${name}` }, name));
    const solvers = this.solvers.map((solver) => html("option", { value: `solver:${solver.name}`, disabled: !solver.available },
      shortTitle(solver) + (solver.available ? "" : " (not installed)")));
    const select = html("select", { "aria-label": "Method", class: "method-name" },
      options.length ? html("optgroup", { label: "Models" }, ...options) : null,
      html("optgroup", { label: "Solvers" }, ...solvers));
    const details = html("div", { class: "details" });
    const name = `Method ${isSecond ? "B" : "A"}`;
    const card = html("div", { class: "method", role: "group", "aria-label": name });
    const remove = html("button", {
      type: "button", class: "icon-button", "aria-label": `Remove ${name}`, title: `Remove ${name}`,
      onclick: () => { card.remove(); this.showMethods(); },
    }, "×");
    card.append(html("div", { class: "method-title" }, html("i", { class: `key series-${isSecond ? 1 : 0}` }), name,
      isSecond ? remove : null), select, details);
    select.addEventListener("change", () => this.showDetails(select, details));
    const used = [...$("methods").querySelectorAll(".method-name")].map((field) => field.value);
    const usable = this.solvers.find(({ name, available }) => available && !used.includes(`solver:${name}`));
    if ((isSecond || !models.length) && usable) select.value = `solver:${usable.name}`;
    this.showDetails(select, details);
    $("methods").append(card);
    this.showMethods();
  }

  showDetails(select, details) {
    const [kind, name] = split(select.value);
    const model = kind === "model" && this.models.find((one) => one.name === name);
    if (!model) {
      const { title } = this.solvers.find((one) => one.name === name);
      return details.replaceChildren(html("p", { class: "hint" }, title));
    }
    const samples = html("input", { type: "number", name: "samples", min: 1, max: 1280, value: 64, "aria-label": "Samples" });
    const decoding = html("select", { name: "decoding", "aria-label": "Decoding" },
      ...model.decodings.map((value) => html("option", { value }, value.replaceAll("_", " "))));
    const showSamples = () => { samples.hidden = !decoding.value.includes("sampling"); };
    decoding.addEventListener("change", showSamples);
    showSamples();
    const hint = model.size && html("p", { class: "hint" }, `Trained on ${this.problem.size_name}: ${model.size}`);
    return details.replaceChildren(...[decoding, samples, hint].filter(Boolean));
  }

  showMethods() {
    $("add-method").hidden = $("methods").childElementCount >= MAX_METHODS;
  }

  chosenMethods() {
    return [...$("methods").children].map((card) => {
      const [kind, name] = split(card.querySelector(".method-name").value);
      const decoding = card.querySelector("[name=decoding]");
      if (!decoding) return { kind, name, seed: Number($("seed").value) };
      const samples = card.querySelector("[name=samples]");
      const method = { kind, name, decoding: decoding.value, seed: Number($("seed").value) };
      return samples.hidden ? method : { ...method, samples: Number(samples.value) };
    });
  }

  // ---------------------------------------------------------------- solving

  async solve() {
    const methods = this.chosenMethods();
    const { id } = await post("api/solve", {
      problem: this.problem.name, instance: this.instance, methods, max_runtime: Number($("max_runtime").value), trace: true,
    });
    this.job = id;
    this.finished = null;
    this.methods = methods;
    this.runs = methods.map((method) => newRun(titleOf(method, this.solvers), method.kind));
    this.player.load(this.problem.name, this.instance, this.runs);
    this.showTab("watch");
    this.showState("Waiting …");
    this.stop = follow(id, {
      state: (event) => this.onState(event),
      incumbent: (event) => this.onIncumbent(event),
      solution: (event) => this.onSolution(event),
      decision: (event) => this.onDecision(event),
      error: (event) => this.onError(event),
      done: (event) => this.onDone(event),
      lost: () => this.attempt(() => { this.leaveJob(); throw new Error("The connection to the service was lost; solve again"); }),
    });
    if (matchMedia("(max-width: 900px)").matches) $("stage").scrollIntoView({ behavior: "smooth" });
  }

  onState({ state, method, method_state: methodState }) {
    if (method !== undefined) this.runs[method].state = methodState;
    this.showState(state === "queued" ? "Waiting …" : "Solving …");
  }

  onIncumbent({ method, seconds, cost }) {
    const run = this.runs[method];
    run.incumbents.push({ seconds, cost });
    run.cost = cost;
    this.progress();
  }

  onSolution({ method, seconds, solution }) {
    this.runs[method].solutions.push({ seconds, solution });
    this.progress();
  }

  onDecision({ method, ...decision }) {
    this.runs[method].decisions.push(decision);
    this.progress();
  }

  onError({ method, message }) {
    const run = this.runs[method];
    if (run) Object.assign(run, { state: "failed", message });
    this.showError(new Error(run ? `${run.label}: ${message}` : message));
  }

  onDone({ methods }) {
    methods.forEach(({ state, cost, seconds, solution }, i) => Object.assign(this.runs[i], { state, cost, seconds, solution }));
    this.finished = this.job;
    this.leaveJob();
    this.player.refresh();
    if (!this.player.isPlaying && this.player.position === 0) this.player.play();
    this.showResults();
  }

  /** Draws what arrived, at most once per frame of the screen, and starts the playback. */
  progress() {
    if (this.isScheduled) return;
    this.isScheduled = true;
    requestAnimationFrame(() => {
      this.isScheduled = false;
      if (!this.runs.length) return;
      this.player.refresh();
      if (!this.player.isPlaying && this.job && this.player.position === 0) this.player.play();
      this.showResults();
    });
  }

  async cancel() {
    await cancel(this.job);
  }

  leaveJob() {
    if (this.stop) this.stop();
    this.stop = null;
    this.job = null;
    this.showState(null);
  }

  showState(words) {
    $("solve-button").textContent = this.job ? "Cancel" : "Solve";
    $("solve-button").classList.toggle("running", Boolean(this.job));
    $("state").textContent = words || "";
  }

  /** What if: the policy continues after a forced move, or without the forbidden ones. */
  decide(run, step, action, forbidden) {
    return this.attempt(async () => {
      const base = run.original || run;
      const taken = run.decisions.slice(0, step).map((decision) => decision.action);
      const earlier = run.forbidden && run.forbiddenStep === step ? run.forbidden : [];
      const all = [...earlier, ...forbidden];
      const { decisions, solution } = await post("api/decide", {
        problem: this.problem.name, instance: this.instance, model: this.methods[this.indexOf(base)].name,
        forced: action === null ? taken : [...taken, action], forbidden: action === null ? all : [],
      });
      const next = {
        ...newRun(`${base.label}, what if`, "model"), decisions, solution, cost: solution.cost, state: "done",
        original: base, forbidden: all, forbiddenStep: step,
      };
      this.replaceRun(run, next);
    });
  }

  indexOf(base) {
    return this.runs.findIndex((run) => (run.original || run) === base);
  }

  replaceRun(run, next) {
    const index = this.runs.indexOf(run);
    const { position } = this.player;
    this.runs[index] = next;
    this.player.runs = this.runs;
    this.player.rebuild();
    this.player.seek(position);
    this.showResults();
  }

  // ---------------------------------------------------------------- results

  clearRuns() {
    if (this.job) this.attempt(() => this.cancel());
    this.leaveJob();
    this.runs = [];
    this.finished = null;
    this.player.pause();
    this.showTab("edit");
    $("tab-watch").disabled = true;
    $("results").hidden = true;
  }

  showTab(name) {
    $("tab-watch").disabled = !this.runs.length;
    for (const tab of ["edit", "watch"]) {
      const isShown = tab === name;
      $(`panel-${tab}`).hidden = !isShown;
      $(`tab-${tab}`).setAttribute("aria-selected", isShown);
      $(`tab-${tab}`).tabIndex = isShown ? 0 : -1;
    }
    this.showHint();
    if (name === "watch") this.player.refresh();
    else this.player.pause();
  }

  showHint() {
    $("what-if").hidden = $("panel-watch").hidden || !this.runs.some((run) => run.decisions.length);
  }

  showResults() {
    const runs = this.runs.flatMap((run) => (run.original ? [run.original, run] : [run]));
    this.showHint();
    $("results").hidden = !runs.some((run) => run.cost !== null || run.message);
    const costs = runs.map((run) => run.cost).filter((cost) => cost !== null);
    const best = (this.problem.maximize ? Math.max : Math.min)(...costs, ...(this.bestKnown === null ? [] : [this.bestKnown]));
    $("comparison").replaceChildren(...runs.map((run) => this.resultRow(run, best)));
    $("reference").textContent = this.bestKnown === null ? "Gap to the best of these" : `Gap to the best of these and ${format(this.bestKnown, 3)}, the best known`;
    this.showCurves();
  }

  resultRow(run, best) {
    const i = this.indexOf(run.original || run);
    const gap = run.cost === null ? null : best === 0 ? 0 : Math.abs(run.cost - best) / Math.abs(best);
    const isFinished = this.finished && run.seconds !== null && !run.original;
    const links = ["json", "csv", "png"].map((kind) => html("button", {
      class: "link", "aria-label": `Save the solution of ${run.label} as ${kind.toUpperCase()}`,
      onclick: () => this.attempt(() => download(`api/jobs/${this.finished}/result?format=${kind}&method=${i}`, `solution.${kind}`)),
    }, kind.toUpperCase()));
    return html("tr", { class: gap === 0 ? "best" : "" },
      html("th", { scope: "row" }, html("i", { class: `key series-${i}` }), run.label),
      html("td", {}, run.cost === null ? run.state : format(run.cost, 4)),
      html("td", {}, gap === null ? "" : `${(100 * gap).toFixed(2)} %`),
      html("td", {}, run.seconds === null ? "" : run.seconds.toFixed(2)),
      html("td", { class: "links" }, ...(isFinished ? links : [])));
  }

  showCurves() {
    if (!$("results").hidden) drawCurves($("curve"), this.runs.map((run) => run.original || run), this.bestKnown);
  }
}

const capitalized = (text) => text.replace(/^./, (letter) => letter.toUpperCase());

function toBase64(buffer) {
  const bytes = Array.from(new Uint8Array(buffer), (byte) => String.fromCharCode(byte));
  return btoa(bytes.join(""));
}

function split(value) {
  const place = value.indexOf(":");
  return [value.slice(0, place), value.slice(place + 1)];
}

/** The name of a solver as people write it. */
const shortTitle = ({ name }) => PROPER_NAMES[name] || capitalized(name.replaceAll("_", " "));

function titleOf({ kind, name, decoding }, solvers) {
  if (kind === "solver") return shortTitle(solvers.find((solver) => solver.name === name));
  return decoding ? `${name}, ${decoding.replaceAll("_", " ")}` : name;
}

/** The button that switches between light, dark and the choice of the system. */
function connectTheme() {
  const themes = ["auto", "light", "dark"];
  const show = (theme) => {
    document.documentElement.dataset.theme = theme;
    $("theme").textContent = { auto: "Auto", light: "Light", dark: "Dark" }[theme];
    $("theme").setAttribute("aria-label", `Theme: ${theme}`);
  };
  let theme = localStorage.getItem("rl4co-theme") || "auto";
  show(theme);
  $("theme").addEventListener("click", () => {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length];
    localStorage.setItem("rl4co-theme", theme);
    show(theme);
  });
}

connectTheme();
const app = new App();
app.attempt(() => app.start());
