// Editing of an instance by mouse, keyboard and table, with undo.

import { addNode, columnsOf, isEditable, moveNode, removeNode, settingsOf, withJobs } from "./instances.js";
import { format, kindOf, viewOf } from "./problems.js";
import { makeDrawing } from "./player.js";
import { html } from "./svg.js";

const MAX_UNDO = 100;
const HINTS = {
  plane: "Click to add a node, drag to move it. Keys: arrows select, Shift + arrows move, N adds, Delete removes.",
  shop: "Each row of the table is a job; its operations run from left to right.",
  flexible: "Operations of this file can run on several machines; they are not edited here.",
  matrix: "Nodes of this file have no coordinates in the plane; they are not edited here.",
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

  /** Shows an instance; `keys` are its possible keys, as the service describes them. */
  load(problem, instance, keys) {
    const before = this.drawing && this.kind;
    Object.assign(this, { problem, keys, instance });
    this.history = [];
    if (this.kind !== before) this.makeDrawing();
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
    this.drawing = makeDrawing(this.canvas, this.problem, this.instance, handlers);
  }

  get kind() {
    if (kindOf(this.problem, this.instance) === "shop") return "shop";
    return isEditable(this.instance) ? "plane" : "matrix";
  }

  show() {
    this.showDrawing();
    const isWide = this.kind === "shop" || (this.kind === "plane" && columnsOf(this.instance, this.keys).length > 3);
    this.stage.parentElement.classList.toggle("wide", isWide);
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
    const number = this.instance.coordinates.length;
    this.change(addNode(this.instance, this.keys, x, y));
    this.drawing.setFocus(number, true);
  }

  remove(index) {
    const first = kindOf(this.problem, this.instance) === "routes" ? 1 : 0;
    this.change(removeNode(this.instance, this.keys, index, first));
    this.drawing.setFocus(Math.min(index, this.instance.coordinates.length - 1), true);
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
    const fields = settingsOf(this.instance, this.keys);
    if (!fields.length) return [];
    return [html("div", { class: "settings" }, ...fields.map(({ title, about, value, write }) => {
      const input = typeof value === "boolean"
        ? html("input", { type: "checkbox", checked: value, onchange: () => this.change(write(input.checked)) })
        : this.input(value, title, write);
      return html("label", { class: "setting", title: about }, html("span", {}, title), input);
    }))];
  }

  /** A field for a number; what is no number is not accepted. */
  input(value, title, write) {
    const input = html("input", {
      type: "number", step: "any", value, "aria-label": title,
      onchange: () => {
        if (input.value.trim() === "") input.value = value;
        else this.change(write(Number(input.value)));
      },
    });
    return input;
  }

  nodeTable() {
    if (!isEditable(this.instance)) return html("p", { class: "hint" }, HINTS.matrix);
    const columns = columnsOf(this.instance, this.keys);
    const { nodes } = this.drawing.view;
    const rows = nodes.map(({ index, title, role }) => html("tr", {},
      html("th", { scope: "row" }, title),
      ...columns.map((column) => {
        const value = Number(format(column.read(index), 4));
        return html("td", {}, this.input(value, `${column.title} of ${title}`, (next) => column.write(index, next)));
      }),
      html("td", {}, role === "depot" ? null : html("button", {
        class: "icon-button", "aria-label": `Remove ${title}`, title: `Remove ${title}`,
        onclick: () => this.remove(index),
      }, "×"))));
    return this.tableOf(["Node", ...columns.map((column) => column.title), ""], rows);
  }

  jobTable() {
    const { instance } = this;
    const { jobs: rows, numMachines } = this.drawing.view;
    if (rows.flat().some((operation) => operation.length > 1)) return html("p", { class: "hint" }, HINTS.flexible);
    const set = (job, k, part) => (value) => {
      const jobs = structuredClone(instance.jobs);
      jobs[job][k][part] = value;
      return withJobs(instance, jobs);
    };
    const longest = Math.max(...rows.map((job) => job.length));
    const body = rows.map((job, j) => html("tr", {},
      html("th", { scope: "row" }, `Job ${j}`),
      ...job.map(([[machine, time]], k) => html("td", { class: "operation" },
        html("select", {
          "aria-label": `Machine of operation ${k} of job ${j}`,
          onchange: (event) => this.change(set(j, k, 0)(Number(event.target.value))),
        }, ...Array.from({ length: numMachines }, (_, m) => html("option", { value: m, selected: m === machine }, `M${m}`))),
        this.input(time, `Time of operation ${k} of job ${j}`, set(j, k, 1)))),
      ...Array.from({ length: longest - job.length }, () => html("td")),
      html("td", {}, html("button", {
        class: "icon-button", "aria-label": `Remove job ${j}`, title: `Remove job ${j}`, disabled: rows.length < 2,
        onclick: () => this.change(withJobs(instance, instance.jobs.filter((_, i) => i !== j))),
      }, "×"))));
    const add = html("button", {
      class: "quiet", onclick: () => this.change(withJobs(instance, [...instance.jobs, structuredClone(instance.jobs.at(-1))])),
    }, "Add a job like the last one");
    const titles = ["", ...Array.from({ length: longest }, (_, k) => `Operation ${k}`), ""];
    return html("div", {}, this.tableOf(titles, body), add);
  }

  tableOf(titles, rows) {
    return html("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Values of the instance" },
      html("table", { class: "values" },
        html("thead", {}, html("tr", {}, ...titles.map((title) => html("th", { scope: "col" }, title)))),
        html("tbody", {}, ...rows)));
  }
}
