/* What the pictures of a search are drawn from: moments, pixels, losses and maps, as numbers. */
"use strict";

const brusleTraceData = (() => {
  const EXTREMES = 0.005; // of effects, which would leave the rest pale

  /* The moments of a search: each improvement, each map, and the last query.

     Of a moment, `improvement` and `belief` are the numbers of the last that were found by then;
     -1 where there is none yet. */
  function momentsOf(improvements, beliefs, points) {
    const found = improvements.map(({ query }, improvement) => ({ query, improvement }));
    if (!found.length) return [];
    const known = new Set(found.map(({ query }) => query));
    const ends = points.slice(-1).map(([query]) => query);
    for (const query of new Set([...beliefs.map((belief) => belief.query), ...ends])) {
      if (!known.has(query)) found.push({ query, improvement: Math.max(0, lastBy(improvements, query)) });
    }
    found.sort((a, b) => a.query - b.query || a.improvement - b.improvement);
    return found.map((moment) => ({ ...moment, belief: lastBy(beliefs, moment.query) }));
  }

  function lastBy(things, query) {
    return things.reduce((last, thing, at) => (thing.query <= query ? at : last), -1);
  }

  /* Which pixels have which levels, improvement by improvement. */
  class Painted {
    constructor(improvements) {
      this.improvements = improvements;
      this.begin();
    }

    begin() {
      this.now = new Map();
      this.number = -1;
    }

    at(number) {
      if (number < this.number) this.begin();
      while (this.number < number) {
        const { set, unset } = this.improvements[++this.number];
        for (const at of unset) this.now.delete(at);
        for (const [at, ...levels] of set) this.now.set(at, levels);
      }
      return this.now;
    }
  }

  /* Attacks that shrink have numbers of changed pixels for losses. */
  function shrinks(improvements) {
    const painted = new Painted(improvements);
    const known = improvements.map(({ loss }, at) => [loss, painted.at(at).size]);
    return known.every(([loss, size]) => loss === null || loss === size);
  }

  /* The best loss so far as corners of steps, a line for each search of an attack. */
  function stepsOf(improvements, end) {
    const found = improvements.filter(({ loss }) => loss !== null);
    const lines = [];
    found.forEach(({ search, query, loss }, at) => {
      if (!at || found[at - 1].search !== search) lines.push([]);
      else lines.at(-1).push([query, found[at - 1].loss]);
      lines.at(-1).push([query, loss]);
      if (at + 1 === found.length && end > query) lines.at(-1).push([end, loss]);
    });
    return lines;
  }

  /* The part of such lines that is drawn by a query. */
  function until(lines, query) {
    const before = lines.map((line) => {
      const kept = line.filter(([at]) => at <= query);
      if (kept.length && kept.length < line.length) kept.push([query, kept.at(-1)[1]]);
      return kept;
    });
    return before.filter((line) => line.length);
  }

  /* A map with its values, which come as bytes in base64: low + (high - low) cell / 63. */
  function readBelief({ query, size, low, high, cells }) {
    const values = Array.from(atob(cells), (cell) => low + ((high - low) * cell.charCodeAt(0)) / 63);
    return { query, size, values };
  }

  /* Which numbers the colours stand for, the same in all maps of a search.

     Effects have 0 in the middle, and their extremes are cut. */
  function scaleOf(beliefs, meaning) {
    const values = beliefs.flatMap((belief) => belief.values);
    let low = values.reduce((a, b) => Math.min(a, b), 0);
    let high = values.reduce((a, b) => Math.max(a, b), 0) || 1;
    const diverging = meaning === "effect" || low < 0;
    let cut = false;
    if (diverging) {
      const sizes = values.map(Math.abs).sort((a, b) => a - b);
      const most = sizes.at(-1) ?? 1;
      const limit = sizes[Math.floor((1 - EXTREMES) * (sizes.length - 1))] || most || 1;
      cut = most > limit;
      [low, high] = [-limit, limit];
    }
    const share = (value) => Math.min(1, Math.max(0, (value - low) / (high - low)));
    return { low, high, cut, diverging, share };
  }

  /* Round numbers between two, with at most so many steps. */
  function ticks(low, high, most) {
    const rough = (high - low) / most;
    const unit = 10 ** Math.floor(Math.log10(rough));
    const step = unit * [1, 2, 5, 10].find((times) => times * unit >= 0.999 * rough);
    const found = [];
    for (let at = Math.ceil(low / step); at * step <= high; at++) {
      found.push(Number((at * step).toPrecision(6)));
    }
    return found;
  }

  return { momentsOf, Painted, shrinks, stepsOf, until, readBelief, scaleOf, ticks };
})();
