// Editing of an instance by mouse, keyboard and table, with undo.

import { addNode, columnsOf, countNodes, isEditable, jobsOf, moveNode, removeNode, settingsOf, shopOf } from "./instances.js";
import { format, kindOf, viewOf } from "./problems.js";
import { makeDrawing } from "./player.js";
import { html } from "./svg.js";

const MAX_UNDO = 100;
const HINTS = {
  plane: "Click to add a node, drag to move it. Keys: arrows select, Shift + arrows move, N adds, Delete removes.",
  shop: "Each row of the table is a job; its operations run from left to right.",
  matrix: "This instance has only a matrix of costs; its nodes are drawn on a circle.",
};

/** An editor in two elements; `onChange(instance)` is called after every change. */
export class Editor {
  constructor(stage, table, onChange) {
    this.stage = stage;
    this.table = table;
    this.onChange = onChange;
    this.history = [];
    this.hint = html("p", { class: "hint" });
    this.undoButton = html("button", { class: "quiet", onclick: () => this.undo() }, "Undo");
    this.canvas = html("div", { class: "stage" });
    stage.replaceChildren(this.canvas, html("div", { class: "hints" }, this.hint, this.undoButton));
    stage.addEventListener("keydown", (event) => {
      if ((event.ctrlKey || event.metaKey) && event.key === "z") { this.undo(); event.preventDefault(); }
    });
  }

  /** Shows an instance; `axes` are the axes of its keys. */
  load(problem, instance, axes) {
    const isSameKind = this.instance && kindOf(instance) === kindOf(this.instance);
    Object.assign(this, { problem, axes, instance });
    this.history = [];
    if (!isSameKind || !this.drawing) this.makeDrawing();
    this.show();
  }

  makeDrawing() {
    if (this.drawing) this.drawing.close();
    const handlers = !isEditable(this.instance) ? {} : {
      place: (x, y) => this.add(x, y),
      drag: (index, x, y, isLast) => this.drag(index, x, y, isLast),
      remove: (index) => this.remove(index),
      nudge: (index, dx, dy) => this.nudge(index, dx, dy),
    };
    this.drawing = makeDrawing(this.canvas, this.instance, handlers);
  }

  get kind() {
    if (kindOf(this.instance) === "shop") return "shop";
    return isEditable(this.instance) ? "plane" : "matrix";
  }

  show() {
    this.showDrawing();
    this.stage.parentElement.classList.toggle("wide", this.kind === "shop");
    this.hint.textContent = HINTS[this.kind];
    this.undoButton.disabled = !this.history.length;
    this.table.replaceChildren(...this.settings(), this.kind === "shop" ? this.jobTable() : this.nodeTable());
  }

  showDrawing() {
    this.drawing.setView(viewOf(this.problem, this.instance));
    this.drawing.show({ actions: [], decision: null, isPreview: true });
  }

  // ---------------------------------------------------------------- changes

  change(instance) {
    if (instance === this.instance) return;
    this.history = [...this.history.slice(1 - MAX_UNDO), this.instance];
    this.instance = instance;
    this.show();
    this.onChange(instance);
  }

  undo() {
    const last = this.history.pop();
    if (!last) return;
    this.instance = last;
    this.show();
    this.onChange(last);
  }

  add(x, y) {
    const before = countNodes(this.instance);
    this.change(addNode(this.problem, this.instance, this.axes, x, y));
    this.drawing.setFocus(this.problem === "pdp" ? (before + 1) / 2 : before, true);
  }

  remove(index) {
    this.change(removeNode(this.problem, this.instance, this.axes, index));
    this.drawing.setFocus(Math.min(index, countNodes(this.instance) - 1), true);
  }

  nudge(index, dx, dy) {
    const { x, y } = this.drawing.view.nodes[index];
    const [left, bottom, right, top] = this.drawing.bounds;
    const step = 0.01 * Math.max(right - left, top - bottom);
    this.change(moveNode(this.instance, index, x + dx * step, y + dy * step));
    this.drawing.setFocus(index, true);
  }

  drag(index, x, y, isLast) {
    this.before ??= this.instance;
    this.instance = moveNode(this.instance, index, x, y);
    if (!isLast) return this.showDrawing();
    const moved = this.instance;
    this.instance = this.before;
    this.before = null;
    this.change(moved);
    return this.drawing.setFocus(index, true);
  }

  // ---------------------------------------------------------------- table

  settings() {
    const fields = kindOf(this.instance) === "shop" ? [] : settingsOf(this.instance);
    if (!fields.length) return [];
    return [html("div", { class: "settings" }, ...fields.map(({ title, value, write }) => {
      const input = typeof value === "boolean"
        ? html("input", { type: "checkbox", checked: value, onchange: () => this.change(write(input.checked)) })
        : this.input(value, title, write);
      return html("label", { class: "setting" }, html("span", {}, title), input);
    }))];
  }

  /** A field for a number; an empty field is infinity where the instance has it. */
  input(value, title, write) {
    const input = html("input", {
      type: "number", step: "any", value: value ?? "", placeholder: value === null ? "∞" : "", "aria-label": title,
      onchange: () => {
        const text = input.value.trim();
        if (text === "" && value !== null) input.value = value;
        else this.change(write(text === "" ? null : Number(text)));
      },
    });
    return input;
  }

  nodeTable() {
    if (!isEditable(this.instance)) return html("p", { class: "hint" }, HINTS.matrix);
    const columns = columnsOf(this.instance, this.axes);
    const { nodes } = this.drawing.view;
    const rows = nodes.map(({ index, title, role }) => html("tr", {},
      html("th", { scope: "row" }, title),
      ...columns.map((column) => {
        const value = column.read(index);
        if (value === undefined) return html("td", {}, html("span", { class: "none" }, "–"));
        const rounded = value === null ? null : Number(format(value, 4));
        return html("td", {}, this.input(rounded, `${column.title} of ${title}`, (next) => column.write(index, next)));
      }),
      html("td", {}, role === "depot" ? null : html("button", {
        class: "icon-button", "aria-label": `Remove ${title}`, title: `Remove ${title}`,
        onclick: () => this.remove(index),
      }, "×"))));
    return this.tableOf(["Node", ...columns.map((column) => column.title), ""], rows);
  }

  jobTable() {
    const jobs = jobsOf(this.instance);
    const machines = this.instance.proc_times.length;
    const longest = Math.max(...jobs.map((job) => job.length));
    const set = (job, k, part) => (value) => {
      const next = structuredClone(jobs);
      next[job][k][part] = value;
      return shopOf(next, machines);
    };
    const rows = jobs.map((job, j) => html("tr", {},
      html("th", { scope: "row" }, `Job ${j}`),
      ...job.map(({ machine, time }, k) => html("td", { class: "operation" },
        html("select", {
          "aria-label": `Machine of operation ${k} of job ${j}`,
          onchange: (event) => this.change(set(j, k, "machine")(Number(event.target.value))),
        }, ...Array.from({ length: machines }, (_, m) => html("option", { value: m, selected: m === machine }, `M${m}`))),
        this.input(time, `Time of operation ${k} of job ${j}`, set(j, k, "time")))),
      ...Array.from({ length: longest - job.length }, () => html("td")),
      html("td", {}, html("button", {
        class: "icon-button", "aria-label": `Remove job ${j}`, title: `Remove job ${j}`, disabled: jobs.length < 3,
        onclick: () => this.change(shopOf(jobs.filter((_, i) => i !== j), machines)),
      }, "×"))));
    const add = html("button", {
      class: "quiet", onclick: () => this.change(shopOf([...jobs, structuredClone(jobs.at(-1))], machines)),
    }, "Add a job like the last one");
    const titles = ["", ...Array.from({ length: longest }, (_, k) => `Operation ${k}`), ""];
    return html("div", {}, this.tableOf(titles, rows), add);
  }

  tableOf(titles, rows) {
    return html("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Values of the instance" },
      html("table", { class: "values" },
        html("thead", {}, html("tr", {}, ...titles.map((title) => html("th", { scope: "col" }, title)))),
        html("tbody", {}, ...rows)));
  }
}
