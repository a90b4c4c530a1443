/* A search, drawn: what it changed, what was seen, what it had learned, and its loss.

   The report and the studio share this file, those that it uses (`brusle.report.scripts.TRACE_VIEW`
   lists all in their order) and page.css. Nothing is fetched but the original, names are shown as
   text, and the colours are those of the page (light, dark, print).

   const view = brusleTraceView(element, {
     shape: [channels, height, width],
     original,  // levels as Uint8Array (row by row, channels last), the address of a picture, or
                // null: then nothing is shown but what was changed
     names,     // of the labels, by number; others are called "class 7"
     label,     // the true label
     target,    // the label to reach; null if there is none
     limit,     // most queries; 0 or nothing: the loss is drawn to the last query
   });
   view.ready              a promise: the original is there; everything else may be called before
   view.setTrace(trace)    all of a search, as `brusle.tracing.Trace.as_dict` has it
   view.setEdits(edits)    only what was changed in the end: [[position, level, ...], ...]
   view.append(improvement), view.point(query, loss), view.belief(belief, meaning)
                           the same piece by piece, while a search runs; an improvement and a belief
                           are as in a trace, so the first improvement is the clean image
   view.length             how many moments can be shown: one for each improvement and belief
   view.show(number)       the moment of that number, from 0; view.number is the one that is shown
   view.moment(number)     {query, improvement, belief}: the last two are numbers in the trace
   view.play(), view.stop()
   view.remove()           takes everything away

   The slider follows new moments as long as it stands at the end. */
"use strict";

const brusleTraceView = (() => {
  const { make, button, counted } = brusleElements;
  const { momentsOf, Painted, readBelief, scaleOf } = brusleTraceData;
  const { pictureOf, pale, rgb, shade, colour, colours } = brusleTracePixels;
  const { Panel, Legend, Scores, Losses } = brusleTracePanels;
  const MAGNIFIED = 25; // so many magnified pixels fit side by side: 9 times at 224 x 224
  const COVERED = 0.3; // of the image, at most, so that something of it is seen between them
  const SIDE = 480; // longer side of the drawing of changed pixels
  const FILM = 6000; // milliseconds that playing takes, at most
  const STEP = 500; // and those of a moment, at most
  const BELIEFS = {
    theta: "theta: how much the search trusts each pixel",
    effect: "effect that the search expects of each pixel",
  };

  class TraceView {
    constructor(element, options) {
      this.element = element;
      this.options = { names: [], target: null, limit: 0, ...options };
      this.reset();
      this.build();
      this.ready = this.load();
      this.looks = ["(prefers-color-scheme: dark)", "print"].map((query) => matchMedia(query));
      this.restyle = () => this.draw();
      for (const look of this.looks) look.addEventListener("change", this.restyle);
    }

    get length() {
      return this.moments.length;
    }

    setTrace(trace) {
      this.reset();
      this.improvements.push(...trace.improvements);
      this.beliefs = trace.beliefs.map(readBelief);
      this.points = trace.queries.map((query, at) => [query, trace.losses[at]]);
      this.meaning = trace.meaning;
      this.refresh(true);
    }

    setEdits(edits) {
      this.reset();
      this.append({ query: 0, search: 0, loss: null, set: edits, unset: [], top: [] });
    }

    append(improvement) {
      const follow = this.atEnd();
      this.improvements.push(improvement);
      this.refresh(follow);
    }

    point(query, loss) {
      const follow = this.atEnd();
      this.points.push([query, loss]);
      this.refresh(follow);
    }

    belief(belief, meaning = this.meaning) {
      const follow = this.atEnd();
      this.meaning = meaning;
      this.beliefs.push(readBelief(belief));
      this.refresh(follow);
    }

    moment(number) {
      return this.moments[number];
    }

    show(number) {
      this.number = Math.max(0, Math.min(number, this.length - 1));
      this.draw();
    }

    play() {
      if (this.timer || this.length < 2) return;
      if (this.atEnd()) this.show(0);
      this.button.textContent = "Pause";
      this.timer = setInterval(() => {
        this.show(this.number + 1);
        if (this.atEnd()) this.stop();
      }, Math.min(STEP, FILM / this.length));
    }

    stop() {
      clearInterval(this.timer);
      this.timer = 0;
      this.button.textContent = "Play";
    }

    remove() {
      this.stop();
      this.removed = true;
      for (const look of this.looks) look.removeEventListener("change", this.restyle);
      this.element.replaceChildren();
      this.element.classList.remove("trace-view");
    }

    atEnd() {
      return this.number >= this.length - 1;
    }

    reset() {
      this.improvements = [];
      this.beliefs = [];
      this.points = [];
      this.meaning = "";
      this.moments = [];
      this.number = 0;
      this.painted = new Painted(this.improvements);
    }

    /* Something is new: all of it is drawn in the next frame, however much comes until then. */
    refresh(follow) {
      this.moments = momentsOf(this.improvements, this.beliefs, this.points);
      if (follow) this.number = Math.max(0, this.length - 1);
      if (this.waiting) return;
      this.waiting = true;
      requestAnimationFrame(() => {
        this.waiting = false;
        if (this.removed) return;
        this.scores.choose(this.improvements);
        this.losses.choose(this.improvements, this.points);
        this.scale = scaleOf(this.beliefs, this.meaning);
        this.draw();
      });
    }

    build() {
      this.before = new Panel("original");
      this.after = new Panel("changed");
      this.changes = new Panel("changed pixels");
      this.map = new Panel("");
      this.changes.canvas.className = "smooth"; // it has frames thinner than a pixel of the image
      this.before.figure.hidden = this.after.figure.hidden = this.options.original === null;
      this.map.figure.hidden = true;
      this.legend = new Legend();
      this.map.canvas.after(this.legend.element);
      this.scores = new Scores(this.options);
      this.losses = new Losses(this.options.limit);
      this.button = button("Play", () => (this.timer ? this.stop() : this.play()));
      this.slider = make("input");
      this.slider.type = "range";
      this.slider.min = 0;
      this.slider.setAttribute("aria-label", "Queries of the search");
      this.slider.addEventListener("input", () => {
        this.stop();
        this.show(Number(this.slider.value));
      });
      this.told = make("p", "trace-told");
      this.controls = make("div", "trace-controls", this.button, this.slider);
      this.controls.hidden = this.scores.element.hidden = this.losses.element.hidden = true;
      const panels = [this.before, this.after, this.changes, this.map].map(({ figure }) => figure);
      const numbers = make("div", "trace-numbers", this.scores.element, this.losses.element);
      this.element.classList.add("trace-view");
      const pictures = make("div", "trace-panels", ...panels);
      this.element.replaceChildren(pictures, this.controls, this.told, numbers);
    }

    async load() {
      const { original, shape } = this.options;
      if (original === null) return;
      this.original = await pictureOf(original, shape);
      if (this.removed) return;
      this.before.put(this.original);
      this.draw();
    }

    draw() {
      const moment = this.moments[this.number];
      if (!moment || !this.scale) return;
      const found = this.improvements[moment.improvement];
      const now = this.painted.at(moment.improvement);
      this.drawAfter(now);
      this.drawChanges(now);
      this.before.say(`original${this.seen(this.improvements[0])}`);
      this.after.say(`changed${this.seen(found)}`);
      this.drawBelief(moment.belief);
      this.scores.draw(found.top);
      this.losses.draw(moment.query);
      this.controls.hidden = this.told.hidden = this.length < 2;
      this.slider.max = this.length - 1;
      this.slider.value = this.number;
      this.told.textContent = this.tell(moment, found, now.size);
      this.slider.setAttribute("aria-valuetext", this.told.textContent);
    }

    tell(moment, found, changed) {
      const words = [
        `query ${moment.query} of ${this.moments.at(-1).query}`,
        counted(changed, "changed pixel"),
      ];
      return words.join(" \u00b7 ") + this.seen(found);
    }

    seen({ top }) {
      return top.length ? `, seen as ${this.scores.name(top[0][0])}` : "";
    }

    drawAfter(changes) {
      if (!this.original) return;
      const { data, width, height } = this.original;
      const image = new ImageData(new Uint8ClampedArray(data), width, height);
      for (const [at, levels] of changes) image.data.set(rgb(levels), 4 * at);
      this.after.put(image);
    }

    /* The changed pixels, magnified, on a pale copy of the original. */
    drawChanges(changes) {
      const [, h, w] = this.options.shape;
      const scale = SIDE / Math.max(h, w);
      const pen = this.changes.pen(Math.round(w * scale), Math.round(h * scale));
      this.drawGround(pen);
      const room = Math.floor(Math.sqrt((COVERED * h * w) / Math.max(1, changes.size)));
      const times = Math.max(1, Math.min(Math.round(Math.max(h, w) / MAGNIFIED), room));
      const side = Math.max(1, times * scale);
      pen.strokeStyle = colour("--faint");
      for (const [at, levels] of changes) {
        const x = ((at % w) + 0.5) * scale - side / 2;
        const y = (Math.floor(at / w) + 0.5) * scale - side / 2;
        pen.fillStyle = `rgb(${rgb(levels).join(", ")})`;
        pen.fillRect(x, y, side, side);
        // a frame shows where a new colour equals its surroundings
        if (side > 3) pen.strokeRect(x + 0.5, y + 0.5, side - 1, side - 1);
      }
      const enlarged = times > 1 ? `, each ${times} times as wide` : "";
      this.changes.say(counted(changes.size, "changed pixel") + enlarged);
    }

    drawGround(pen) {
      const { width, height } = pen.canvas;
      const back = colours("--paper")[0] < 128 ? 30 : 245;
      pen.fillStyle = `rgb(${back}, ${back}, ${back})`;
      pen.fillRect(0, 0, width, height);
      if (!this.original) return;
      pen.imageSmoothingEnabled = false;
      pen.drawImage(pale(this.original, back), 0, 0, width, height);
    }

    drawBelief(number) {
      this.map.figure.hidden = this.beliefs.length === 0;
      if (!this.beliefs.length) return;
      const [, h, w] = this.options.shape;
      const what = BELIEFS[this.meaning] ?? this.meaning;
      this.legend.draw(this.scale);
      this.map.canvas.style.aspectRatio = `${w} / ${h}`; // cells need not be square
      if (number < 0) {
        this.map.pen(1, 1);
        this.map.say(`${what}: nothing is known yet`);
        return;
      }
      const { query, size, values } = this.beliefs[number];
      const name = this.scale.diverging ? "--diverging" : "--map";
      const stops = [0, 1, 2, 3, 4].map((at) => colours(name + at));
      const image = new ImageData(size[1], size[0]);
      values.forEach((value, at) => image.data.set(shade(stops, this.scale.share(value)), 4 * at));
      this.map.put(image);
      const pooled = size[0] < h || size[1] < w ? "; a cell is the mean of its pixels" : "";
      this.map.say(`${what}, after ${counted(query, "query")}${pooled}`);
    }
  }

  return (element, options) => new TraceView(element, options);
})();
