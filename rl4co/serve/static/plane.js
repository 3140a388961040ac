// Drawing of nodes in the plane: tours, routes and facilities, with probabilities of the next node.

import { percent } from "./problems.js";
import { hue, svg } from "./svg.js";

const MARGIN = 26;
const MAX_HALOS = 12;
const DIRECTIONS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

/** A drawing in `container`; `handlers` may have pick(index), forbid(index), place(x, y),
 * drag(index, x, y, isLast), remove(index) and nudge(index, dx, dy). */
export class PlaneDrawing {
  constructor(container, handlers = {}) {
    this.handlers = handlers;
    this.layers = Object.fromEntries(
      ["links", "edges", "halos", "nodes", "labels"].map((name) => [name, svg("g", { class: name })]),
    );
    this.root = svg("svg", { class: "drawing plane", role: "group" }, Object.values(this.layers));
    container.replaceChildren(this.root);
    this.focused = 0;
    this.listen();
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.root);
  }

  close() {
    this.observer.disconnect();
  }

  setView(view) {
    this.view = view;
    this.bounds = view.bounds;
    this.scale = null; // nothing is drawn while the drawing is hidden
    this.marks = [];
    this.focused = Math.min(this.focused, view.nodes.length - 1);
    this.root.setAttribute("aria-label", `Map of ${view.nodes.length} nodes`);
    this.resize();
  }

  // ---------------------------------------------------------------- places

  resize() {
    if (!this.view) return;
    const { clientWidth: width, clientHeight: height } = this.root;
    if (!width || !height) return;
    this.root.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const [left, bottom, right, top] = this.bounds;
    const span = Math.max(right - left, 1e-9), rise = Math.max(top - bottom, 1e-9);
    this.scale = Math.min((width - 2 * MARGIN) / span, (height - 2 * MARGIN) / rise);
    this.origin = [
      (width - span * this.scale) / 2 - left * this.scale,
      (height + rise * this.scale) / 2 + bottom * this.scale,
    ];
    const room = Math.sqrt((width * height) / Math.max(this.view.nodes.length, 12));
    this.radius = Math.max(2.2, Math.min(11, 0.1 * room));
    this.drawNodes();
    if (this.frame) this.show(this.frame);
  }

  place({ x, y }) {
    return [this.origin[0] + x * this.scale, this.origin[1] - y * this.scale];
  }

  at(index) {
    return this.place(this.view.nodes[index]);
  }

  /** Coordinates of the instance at a place of the window. */
  coordinates(event) {
    const box = this.root.getBoundingClientRect();
    const x = (event.clientX - box.left - this.origin[0]) / this.scale;
    const y = (this.origin[1] - (event.clientY - box.top)) / this.scale;
    const [left, bottom, right, top] = this.bounds;
    return [Math.min(right, Math.max(left, x)), Math.min(top, Math.max(bottom, y))];
  }

  // ---------------------------------------------------------------- nodes

  drawNodes() {
    const { nodes, links = [] } = this.view;
    this.layers.links.replaceChildren(
      ...links.map(([from, to]) => this.line(from, to, { class: "link" })),
    );
    this.marks = nodes.map((node) => this.mark(node));
    this.layers.nodes.replaceChildren(...this.marks);
  }

  mark(node) {
    const [x, y] = this.place(node);
    const isDepot = node.role === "depot";
    const size = isDepot ? this.radius * 1.15 : this.radius * (0.72 + 0.38 * Math.sqrt(node.size));
    const children = [svg("circle", { class: "target", r: Math.max(size, 13) }), this.shape(node, size)];
    if (node.window) children.push(...this.windowRing(node.window, size + 3.4));
    if (this.radius >= 8 && !isDepot)
      children.push(svg("text", { class: "number", dy: "0.35em" }, [String(node.index)]));
    const title = svg("title", {}, [node.title]);
    return svg("g", {
      class: `node ${node.role}`, transform: `translate(${x} ${y})`, "data-index": node.index,
      tabindex: node.index === this.focused ? 0 : -1, role: "button",
    }, [title, ...children]);
  }

  shape(node, size) {
    if (node.role === "depot")
      return svg("rect", { class: "shape", x: -size, y: -size, width: 2 * size, height: 2 * size, rx: size / 3 });
    if (node.role === "delivery" || node.role === "backhaul") {
      const r = size * 1.15;
      return svg("path", { class: "shape", d: `M0 ${-r}L${r} 0L0 ${r}L${-r} 0Z` });
    }
    return svg("circle", { class: "shape", r: size });
  }

  /** The time window as an arc of a clock that ends when the depot closes. */
  windowRing([opens, closes], r) {
    const point = (part) => {
      const angle = 2 * Math.PI * Math.min(part, 0.9999) - Math.PI / 2;
      return `${r * Math.cos(angle)} ${r * Math.sin(angle)}`;
    };
    const large = closes - opens > 0.5 ? 1 : 0;
    const arc = `M${point(opens)}A${r} ${r} 0 ${large} 1 ${point(closes)}`;
    return [svg("circle", { class: "day", r }), svg("path", { class: "window", d: arc })];
  }

  line(from, to, attributes) {
    const [x1, y1] = this.at(from), [x2, y2] = this.at(to);
    return svg("line", { x1, y1, x2, y2, ...attributes });
  }

  // ---------------------------------------------------------------- frames

  /** Shows a frame: `actions` taken so far, and the `decision` that comes next, if any. */
  show(frame) {
    this.frame = frame;
    if (!this.scale) return;
    const partial = this.view.partial(frame.actions);
    const edges = partial.spokes ? this.spokes(partial) : this.paths(partial, frame);
    this.layers.edges.replaceChildren(...edges);
    this.showStates(partial, frame);
    this.showCandidates(partial, frame);
  }

  paths({ paths }, frame) {
    const elements = paths.map(({ nodes, route }) => {
      const d = nodes.map((node, k) => `${k ? "L" : "M"}${this.at(node).join(" ")}`).join("");
      return svg("path", { class: "route", d, style: hue(route) });
    });
    const last = paths.at(-1);
    if (frame.animates && last && last.nodes.length > 1 && frame.decision) {
      const [from, to] = last.nodes.slice(-2);
      const leg = this.line(from, to, { class: "leg", pathLength: 1, style: hue(last.route) });
      elements.push(leg);
    }
    return elements;
  }

  spokes({ spokes }) {
    return spokes.map(({ from, to, route }) => this.line(from, to, { class: "spoke", style: hue(route) }));
  }

  showStates(partial, frame) {
    const routeOf = new Map();
    for (const { nodes, route } of partial.paths) for (const node of nodes) routeOf.set(node, route);
    for (const { from, to, route } of partial.spokes || []) routeOf.set(to, route).set(from, route);
    const allowed = frame.decision && new Set(frame.decision.mask.map((a) => this.view.actionNode(a)));
    const chances = new Map(frame.decision ? frame.decision.candidates : []);
    for (const [index, mark] of this.marks.entries()) {
      const isVisited = partial.visited.has(index);
      const { classList } = mark;
      classList.toggle("visited", isVisited || (partial.spokes && routeOf.has(index)) || false);
      classList.toggle("facility", Boolean(partial.facilities) && isVisited);
      classList.toggle("current", Boolean(frame.decision) && index === partial.current);
      classList.toggle("allowed", Boolean(allowed) && allowed.has(index));
      classList.toggle("blocked", Boolean(allowed) && !allowed.has(index) && !isVisited);
      mark.setAttribute("style", routeOf.has(index) ? hue(routeOf.get(index)) : "");
      const chance = chances.get(this.view.nodeAction(index));
      const words = [this.view.nodes[index].title];
      if (isVisited) words.push("visited");
      else if (allowed) words.push(allowed.has(index) ? "allowed" : "not allowed now");
      if (chance !== undefined) words.push(percent(chance));
      mark.setAttribute("aria-label", words.join(", "));
      mark.firstChild.textContent = words.join(", ");
    }
  }

  showCandidates(partial, { decision }) {
    const halos = [], labels = [];
    for (const [action, chance] of decision ? decision.candidates.slice(0, MAX_HALOS) : []) {
      const index = this.view.actionNode(action);
      if (!this.view.nodes[index] || chance < 0.002) continue;
      const [x, y] = this.at(index);
      const chosen = action === decision.action ? " chosen" : "";
      const style = `--p:${chance.toFixed(3)}`;
      if (partial.current !== null && partial.current !== index)
        halos.push(this.line(partial.current, index, { class: `chance${chosen}`, style }));
      const r = this.radius * (1 + 1.9 * Math.sqrt(chance));
      halos.push(svg("circle", { class: `halo${chosen}`, cx: x, cy: y, r, style }));
      if (chance >= 0.1 || chosen)
        this.addLabel(labels, this.labelPlace(partial.current, x, y, r), percent(chance));
    }
    this.layers.halos.replaceChildren(...halos);
    this.layers.labels.replaceChildren(...labels);
  }

  /** A label behind a node, as seen from the current one, where it hides least. */
  labelPlace(current, x, y, r) {
    const [a, b] = current === null ? [x, y + 1] : this.at(current);
    const length = Math.hypot(x - a, y - b) || 1;
    const [dx, dy] = length === 1 && x === a ? [0, -1] : [(x - a) / length, (y - b) / length];
    return { x: x + dx * (r + 16), y: y + dy * (r + 10) };
  }

  /** Adds a label, unless it would hide another one. */
  addLabel(labels, { x, y }, text) {
    const hides = labels.some((one) =>
      Math.abs(one.getAttribute("x") - x) < 34 && Math.abs(one.getAttribute("y") - y) < 13);
    if (!hides) labels.push(svg("text", { class: "chance-label", x, y, dy: "0.35em" }, [text]));
  }

  // ---------------------------------------------------------------- mouse and keyboard

  listen() {
    const { root } = this;
    root.addEventListener("pointerdown", (event) => this.press(event));
    root.addEventListener("keydown", (event) => this.pressKey(event));
    root.addEventListener("focusin", (event) => {
      const index = indexOf(event.target);
      if (index !== null) this.setFocus(index, false);
    });
  }

  press(event) {
    if (event.button !== 0 || !this.view) return;
    const index = indexOf(event.target);
    const { pick, place, drag } = this.handlers;
    if (index === null) {
      if (place) place(...this.coordinates(event));
      return;
    }
    this.setFocus(index, true);
    event.preventDefault();
    if (!drag) {
      if (pick) (event.shiftKey && this.handlers.forbid ? this.handlers.forbid : pick)(index);
      return;
    }
    this.follow(event, index);
  }

  /** Moves a node with the pointer until it is released. */
  follow(event, index) {
    const start = [event.clientX, event.clientY];
    let moved = false;
    const move = (step) => {
      moved ||= Math.hypot(step.clientX - start[0], step.clientY - start[1]) > 3;
      if (moved) this.handlers.drag(index, ...this.coordinates(step), false);
    };
    const stop = (step) => {
      removeEventListener("pointermove", move);
      removeEventListener("pointerup", stop);
      removeEventListener("pointercancel", stop);
      if (moved) this.handlers.drag(index, ...this.coordinates(step), true);
      else if (this.handlers.pick) this.handlers.pick(index);
    };
    addEventListener("pointermove", move);
    addEventListener("pointerup", stop);
    addEventListener("pointercancel", stop);
  }

  pressKey(event) {
    const index = indexOf(event.target);
    if (index === null) return;
    const { pick, forbid, place, remove, nudge } = this.handlers;
    const direction = DIRECTIONS[event.key];
    const node = this.view.nodes[index];
    const isRemoval = event.key === "Delete" || event.key === "Backspace";
    if (direction && event.shiftKey && nudge) nudge(index, ...direction);
    else if (direction) this.setFocus(this.neighbour(index, direction), true);
    else if (event.key === "Enter" && pick) pick(index);
    else if (event.key === "x" && forbid) forbid(index);
    else if (isRemoval && remove) remove(index);
    else if ((event.key === "Insert" || event.key === "n") && place) {
      const [left, bottom, right, top] = this.bounds;
      const step = 0.06 * Math.max(right - left, top - bottom);
      const inside = (value, low, high) => (value + step > high ? Math.max(low, value - step) : value + step);
      place(inside(node.x, left, right), inside(node.y, bottom, top));
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** The nearest node in a direction: within 60 degrees of it, the index itself if there is none. */
  neighbour(index, [dx, dy]) {
    const { x, y } = this.view.nodes[index];
    let best = index, least = Infinity;
    for (const node of this.view.nodes) {
      const along = (node.x - x) * dx + (node.y - y) * dy;
      const distance = Math.hypot(node.x - x, node.y - y);
      if (along > 0.5 * distance && distance > 0 && distance + 2 * (distance - along) < least) {
        least = distance + 2 * (distance - along);
        best = node.index;
      }
    }
    return best;
  }

  setFocus(index, moves) {
    if (!this.marks[index]) return;
    this.marks[this.focused]?.setAttribute("tabindex", -1);
    this.focused = index;
    this.marks[index].setAttribute("tabindex", 0);
    if (moves) this.marks[index].focus({ preventScroll: true });
  }
}

function indexOf(target) {
  const mark = target.closest ? target.closest(".node") : null;
  return mark ? Number(mark.dataset.index) : null;
}
