/* The panels of a search: pictures, maps with their legend, scores as bars, the loss as a chart. */
"use strict";

const brusleTracePanels = (() => {
  const { make, svg } = brusleElements;
  const { shrinks, stepsOf, until, ticks } = brusleTraceData;
  const LABELS = 8; // lines of scores
  const DOTS = 512; // losses that are drawn
  const CHART = { width: 460, height: 220, left: 52, right: 442, top: 10, bottom: 186 };
  const SIGNS = { true: "\u25cf ", target: "\u25b6 " };

  /* A canvas with a caption. */
  class Panel {
    constructor(caption) {
      this.canvas = make("canvas");
      this.canvas.setAttribute("role", "img");
      this.caption = make("figcaption");
      this.figure = make("figure", "", this.canvas, this.caption);
      this.say(caption);
    }

    say(text) {
      this.caption.textContent = text;
      this.canvas.setAttribute("aria-label", text);
    }

    pen(width, height) {
      this.canvas.width = width;
      this.canvas.height = height;
      return this.canvas.getContext("2d");
    }

    put(image) {
      this.pen(image.width, image.height).putImageData(image, 0, 0);
    }
  }

  /* The colours of a map with the numbers that they stand for. */
  class Legend {
    constructor() {
      this.low = make("span");
      this.high = make("span");
      this.bar = make("i");
      this.element = make("p", "trace-legend", this.low, this.bar, this.high);
    }

    draw({ low, high, cut, diverging }) {
      this.low.textContent = (cut ? "\u2264 " : "") + Number(low.toPrecision(3));
      this.high.textContent = (cut ? "\u2265 " : "") + Number(high.toPrecision(3));
      this.bar.className = diverging ? "diverging" : "sequential";
    }
  }

  /* Labels with their scores as bars, each in its place for the whole search. */
  class Scores {
    constructor({ names, label, target }) {
      this.names = names;
      this.roles = new Map([[target, "target"], [label, "true"]]);
      this.lines = new Map();
      this.whole = 1; // the score of a full bar
      this.list = make("ul");
      this.caption = make("figcaption", "", "scores of the best labels");
      this.element = make("figure", "trace-scores", this.caption, this.list);
    }

    name(label) {
      return this.names[label] ?? `class ${label}`;
    }

    /* The labels that were highest at some time; the true label and the target come first. */
    choose(improvements) {
      const best = new Map();
      for (const [label, score] of improvements.flatMap(({ top }) => top)) {
        best.set(label, Math.max(score, best.get(label) ?? -Infinity));
      }
      const rank = (label) => ({ true: 0, target: 1 })[this.roles.get(label)] ?? 2;
      const labels = [...best.keys()];
      labels.sort((a, b) => rank(a) - rank(b) || best.get(b) - best.get(a) || a - b);
      this.whole = Math.max(1, ...best.values()); // confidences may be percentages
      const chosen = labels.slice(0, LABELS);
      if (chosen.join() !== [...this.lines.keys()].join()) this.place(chosen);
      this.element.hidden = chosen.length === 0;
    }

    place(labels) {
      this.lines = new Map(labels.map((label) => [label, this.line(label)]));
      this.list.replaceChildren(...[...this.lines.values()].map(({ element }) => element));
    }

    line(label) {
      const role = this.roles.get(label) ?? "";
      const name = make("span", "", (SIGNS[role] ?? "") + this.name(label));
      const score = make("b");
      const element = make("li", role, name, score);
      element.title = role ? `${this.name(label)} (${role})` : this.name(label);
      return { element, score };
    }

    draw(top) {
      const scores = new Map(top);
      for (const [label, { element, score }] of this.lines) {
        const value = scores.get(label);
        const share = Math.min(1, Math.max(0, (value ?? 0) / this.whole));
        element.style.setProperty("--share", `${(100 * share).toFixed(2)}%`);
        score.textContent = value === undefined ? "\u2013" : value.toFixed(this.whole > 1 ? 1 : 3);
      }
    }
  }

  /* Every query as a faint dot, and the best so far as steps; what comes later is pale. */
  class Losses {
    constructor(limit) {
      this.limit = limit;
      this.svg = svg("svg", { viewBox: `0 0 ${CHART.width} ${CHART.height}`, role: "img" });
      this.caption = make("figcaption");
      this.element = make("figure", "trace-losses", this.caption, this.svg);
    }

    /* What is drawn at all moments; `draw` then shows one of them. */
    choose(improvements, points) {
      const known = points.filter(([, loss]) => loss !== null);
      const end = Math.max(0, ...points.map(([query]) => query));
      this.steps = stepsOf(improvements, end);
      const corners = [...known, ...this.steps.flat()];
      this.element.hidden = corners.length === 0;
      if (!corners.length) return;
      const name = shrinks(improvements) ? "changed pixels" : "loss";
      this.caption.textContent = `${name} over queries; steps are the best so far`;
      this.svg.setAttribute("aria-label", this.caption.textContent);
      this.fit(corners, Math.max(1, this.limit, end));
      const every = Math.ceil(known.length / DOTS);
      const dots = known.filter((_, at) => at % every === 0);
      this.behind = [
        ...this.axes(name),
        svg("path", { class: "dots", d: dots.map((dot) => `M${this.spot(dot)}h0`).join("") }),
        svg("path", { class: "line c0 later", d: this.path(this.steps) }),
      ];
    }

    draw(query) {
      if (this.element.hidden) return;
      const [x] = this.place([query, 0]);
      this.svg.replaceChildren(
        ...this.behind,
        svg("path", { class: "line c0", d: this.path(until(this.steps, query)) }),
        svg("path", { class: "now", d: `M${x.toFixed(1)} ${CHART.top}V${CHART.bottom}` }),
      );
    }

    /* Where queries and losses go, with some room above and below. */
    fit(corners, last) {
      const losses = corners.map(([, loss]) => loss);
      const [low, high] = [Math.min(...losses), Math.max(...losses)];
      const margin = 0.05 * (high - low) || 0.5;
      [this.low, this.high, this.last] = [low - margin, high + margin, last];
    }

    place([query, loss]) {
      const right = query / this.last;
      const down = (this.high - loss) / (this.high - this.low);
      return [
        CHART.left + (CHART.right - CHART.left) * right,
        CHART.top + (CHART.bottom - CHART.top) * down,
      ];
    }

    spot(corner) {
      return this.place(corner).map((number) => number.toFixed(1)).join(" ");
    }

    path(lines) {
      return lines.map((line) => `M${line.map((corner) => this.spot(corner)).join("L")}`).join("");
    }

    axes(name) {
      const shapes = [];
      for (const value of ticks(this.low, this.high, 4)) {
        const [, y] = this.place([0, value]);
        shapes.push(svg("path", { class: "rule", d: `M${CHART.left} ${y}H${CHART.right}` }));
        shapes.push(svg("text", { x: CHART.left - 6, y: y + 4, "text-anchor": "end" }, value));
      }
      for (const value of ticks(0, this.last, 5)) {
        const [x] = this.place([value, 0]);
        shapes.push(svg("text", { x, y: CHART.bottom + 16, "text-anchor": "middle" }, value));
      }
      const [side, below] = [(CHART.bottom + CHART.top) / 2, CHART.height - 3];
      const turned = { x: 11, y: side, "text-anchor": "middle", transform: `rotate(-90 11 ${side})` };
      shapes.push(svg("text", { x: CHART.right, y: below, "text-anchor": "end" }, "queries"));
      shapes.push(svg("text", turned, name));
      return shapes;
    }
  }

  return { Panel, Legend, Scores, Losses };
})();
