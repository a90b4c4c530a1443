/* Values of curves where somebody points at a chart, or walks along it with the arrow keys. */
"use strict";

const brusleCurveValues = (() => {
  const { make, svg, counted } = brusleElements;
  const KEYS = { ArrowLeft: -1, ArrowRight: 1, PageDown: -20, PageUp: 20 };

  class Reader {
    /* `chart` is an svg element, `values` what `brusle.report.charts.hover_values` says of it. */
    constructor(chart, values) {
      this.chart = chart;
      this.values = values;
      this.marks = values.marks;
      this.guide = svg("g", { class: "guide" });
      this.box = make("div", "values");
      this.hide();
      chart.append(this.guide);
      chart.tabIndex = 0;
      chart.setAttribute("aria-description", "The arrow keys walk along the curves.");
      const frame = make("div", "chart");
      chart.replaceWith(frame);
      frame.append(chart, this.box);
      this.listen();
    }

    listen() {
      this.chart.addEventListener("pointermove", (event) => this.point(event));
      this.chart.addEventListener("pointerdown", (event) => this.point(event));
      this.chart.addEventListener("pointerleave", (event) => {
        if (event.pointerType === "mouse") this.hide(); // a finger has left when it lets go
      });
      this.chart.addEventListener("blur", () => this.hide());
      this.chart.addEventListener("keydown", (event) => this.walk(event));
      document.addEventListener("pointerdown", (event) => {
        if (!this.chart.contains(event.target)) this.hide();
      });
    }

    point(event) {
      const { left, width } = this.chart.getBoundingClientRect();
      const x = ((event.clientX - left) / width) * this.chart.viewBox.baseVal.width;
      const [begin, , wide] = this.values.box;
      const place = (this.values.limit * (x - begin)) / wide;
      this.box.ariaLive = "off"; // whoever points can see
      this.show(this.nearest(place));
    }

    nearest(place) {
      const gaps = this.marks.map((mark) => Math.abs(mark - place));
      return gaps.indexOf(Math.min(...gaps));
    }

    walk(event) {
      const last = this.marks.length - 1;
      const here = this.at ?? last;
      const places = { Home: 0, End: last, Escape: null };
      if (!(event.key in KEYS) && !(event.key in places)) return;
      event.preventDefault();
      if (event.key === "Escape") return this.hide();
      this.box.ariaLive = "polite";
      const step = this.at === null ? 0 : KEYS[event.key];
      this.show(places[event.key] ?? Math.max(0, Math.min(last, here + step)));
    }

    hide() {
      this.at = null;
      this.box.hidden = true;
      this.guide.replaceChildren();
    }

    show(at) {
      this.at = at;
      const mark = this.marks[at];
      const [left, top, width, height] = this.values.box;
      const x = left + (width * mark) / this.values.limit;
      const found = this.values.curves.filter((curve) => curve.values[at] !== null);
      const dots = found.map(({ look, values }) => {
        const y = top + height * (1 - parseFloat(values[at]) / 100);
        return svg("circle", { class: `bar ${look}`, cx: x, cy: y, r: 4 });
      });
      this.guide.replaceChildren(svg("path", { class: "now", d: `M${x} ${top}v${height}` }), ...dots);
      const lines = found.map(({ name, look, values }) => {
        return make("li", "key", make("i", look), make("span", "", name), make("b", "", values[at]));
      });
      const with_ = this.values.what === "pixel" ? "with" : "within";
      this.box.replaceChildren(
        make("p", "", `${with_} ${counted(mark, this.values.what)}`),
        make("ul", "", ...lines),
        make("p", "faint", this.values.brackets),
      );
      this.box.hidden = false;
    }
  }

  function readAll(charts) {
    for (const chart of document.querySelectorAll("svg[data-chart]")) {
      new Reader(chart, charts[chart.dataset.chart]);
    }
  }

  return { readAll };
})();
