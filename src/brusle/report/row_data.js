/* The rows of a run, as `brusle.report.exploring.explore` has put them into the page. */
"use strict";

const brusleRowData = (() => {
  const OUTCOMES = {
    success: "fooled",
    failed: "withstood",
    skipped: "skipped",
    unverified: "unverified",
    error: "error",
  };
  // whether the page has a picture or a trace, as `brusle.report.exploring.Has` numbers it
  const HAS = { none: 0, here: 1, leftOut: 2, unreadable: 3, damaged: 4 };

  class RowData {
    constructor() {
      const facts = read("row-data");
      this.facts = facts;
      this.names = facts.names;
      this.rows = facts.rows.key.map((_, at) => this.row(at));
      this.numbers = new Map(facts.rows.key.map((key, at) => [key, at]));
      this.blocks = {};
    }

    row(at) {
      const { rows, settings, images, errors, statuses } = this.facts;
      const setting = settings[rows.setting[at]];
      return {
        at,
        key: rows.key[at],
        setting,
        image: images[rows.image[at]],
        label: rows.label[at],
        target: rows.target[at],
        before: rows.before[at],
        after: rows.after[at],
        outcome: OUTCOMES[statuses[rows.status[at]]],
        stable: Boolean(rows.stable[at]),
        queries: rows.queries[at],
        pixels: rows.pixels[at],
        error: errors[rows.error[at]],
        picture: rows.picture[at],
        trace: rows.trace[at],
      };
    }

    /* The row of a key; nothing if the page does not hold it. */
    find(key) {
      return this.rows[this.numbers.get(key)];
    }

    /* What a label is called; nothing of no label. */
    name(label) {
      if (label === null) return "";
      return label < 0 ? "unknown" : (this.names[label] ?? `class ${label}`);
    }

    /* The address of the original; null if it is not in the page. */
    original({ at, picture }) {
      if (picture !== HAS.here) return null;
      return `data:image/png;base64,${this.block("picture-data")[this.facts.rows.image[at]]}`;
    }

    /* The changed pixels: [[position, level, ...], ...]. */
    edits({ at }) {
      const bytes = bytesOf(this.block("edit-data")[at] ?? "");
      const [channels] = this.facts.shape;
      const count = bytes.length / (4 + channels);
      const numbers = new DataView(bytes.buffer);
      return Array.from({ length: count }, (_, edit) => {
        const levels = bytes.subarray(4 * count + channels * edit, 4 * count + channels * (edit + 1));
        return [numbers.getUint32(4 * edit, true), ...levels];
      });
    }

    /* A promise of the trace, as `brusle.tracing.Trace.as_dict` has it. */
    trace({ at }) {
      const packed = new Blob([bytesOf(this.block("trace-data")[at])]);
      const whole = packed.stream().pipeThrough(new DecompressionStream("deflate"));
      return new Response(whole).json();
    }

    /* Large parts of the page are read when they are first needed. */
    block(id) {
      this.blocks[id] ??= read(id);
      return this.blocks[id];
    }
  }

  function read(id) {
    return JSON.parse(document.getElementById(id).textContent);
  }

  function bytesOf(text) {
    return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  }

  return { RowData, HAS, OUTCOMES: Object.values(OUTCOMES), read };
})();
