/* One row, looked at closely: what is known of it, its images, and its search. */
"use strict";

const brusleRowView = (() => {
  const { make, button } = brusleElements;
  const { HAS } = brusleRowData;
  const EXPLAIN = "brusle explain RUN --image NAME";
  const NO_PICTURE = {
    [HAS.leftOut]: [
      "The images of this row are not in this page, which would be too large: ", EXPLAIN, " draws them.",
    ],
    [HAS.unreadable]: [
      "The original image could not be read when this page was written: say where it is with ",
      "brusle report RUN --data DATA", ".",
    ],
    [HAS.damaged]: [
      "The changes that are stored of this row are damaged: see ", "brusle verify RUN", ".",
    ],
  };
  const NO_TRACE = {
    [HAS.none]: [
      "No trace of this search was kept: ", "brusle evaluate --trace", " with another --out keeps one.",
    ],
    [HAS.leftOut]: [
      "The trace of this search is not in this page, which would be too large: ", EXPLAIN, " draws it.",
    ],
    [HAS.damaged]: [
      "The trace that is stored of this row is damaged: see ", "brusle verify RUN", ".",
    ],
  };

  class RowView {
    /* `turn` is called with -1 and 1 for the rows beside this one, `close` to be closed. */
    constructor(data, turn, close) {
      this.data = data;
      this.heading = make("h3");
      this.heading.tabIndex = -1;
      this.setting = make("p", "faint");
      this.facts = make("dl");
      this.notes = make("div", "row-notes");
      this.drawing = make("div");
      this.link = make("a", "", "Link to this row");
      this.back = button("Previous row", () => turn(-1));
      this.on = button("Next row", () => turn(1));
      const tools = make("div", "row-tools", this.back, this.on, button("Close", close), this.link);
      const parts = [tools, this.heading, this.setting, this.facts, this.drawing, this.notes];
      this.element = make("article", "row-view", ...parts);
      this.element.hidden = true;
      this.element.addEventListener("keydown", (event) => {
        if (event.key === "Escape") close();
      });
    }

    close() {
      this.row = null;
      this.view?.remove();
      this.view = null;
      this.element.hidden = true;
    }

    /* `first` and `last` say whether there are rows beside this one. */
    open(row, { first, last }) {
      if (row.key !== this.row?.key) this.fill(row);
      this.back.disabled = first;
      this.on.disabled = last;
      this.element.hidden = false;
    }

    fill(row) {
      this.close();
      this.row = row;
      this.heading.textContent = row.image;
      this.setting.textContent = row.setting.title;
      this.link.href = `#row=${row.key}`;
      this.facts.replaceChildren(...this.known(row).map(([name, text]) => {
        return make("div", "", make("dt", "", name), make("dd", "", text));
      }));
      this.notes.replaceChildren();
      this.note(NO_PICTURE[row.picture]);
      if (row.queries > 0) this.note(NO_TRACE[row.trace]);
      if (row.picture === HAS.here || row.trace === HAS.here) this.draw(row);
    }

    known(row) {
      const { setting } = row;
      const facts = [
        ["true class", this.data.name(row.label)],
        ["target", this.data.name(row.target)],
        ["seen before", this.data.name(row.before)],
        ["seen after", this.data.name(row.after)],
        ["outcome", row.outcome],
        ["queries", `${row.queries} of ${setting.queries}`],
        ["changed pixels", `${row.pixels} of ${setting.pixels}`],
        ["reason", row.error],
      ];
      if (this.data.facts.randomised && row.outcome === "fooled") {
        facts.push(["repeated by fresh answers", row.stable ? "yes" : "no"]);
      }
      return facts.filter(([, text]) => text);
    }

    note(said) {
      if (!said) return;
      const [before, command, after] = said;
      this.notes.append(make("p", "faint", before, make("code", "", command), after));
    }

    async draw(row) {
      const view = brusleTraceView(this.drawing, {
        shape: this.data.facts.shape,
        original: this.data.original(row),
        names: this.data.names,
        label: row.label,
        target: row.target,
      });
      this.view = view;
      try {
        if (row.trace === HAS.here) view.setTrace(await this.data.trace(row));
        else view.setEdits(this.data.edits(row));
        await view.ready;
      } catch {
        if (this.view !== view) return; // another row was opened since
        const said = "This browser cannot draw what the page holds of this row.";
        this.notes.append(make("p", "faint", said));
      }
    }
  }

  return { RowView };
})();
