/* Run folders: which there are, how far each is, its rows, and what became of one of them. */
"use strict";

const BrusleRuns = (() => {
  const { make, button } = brusleElements;
  const { ask } = brusleAsking;
  const OFTEN = 1000; // milliseconds until a run that is written is looked at again
  const SELDOM = 5000; // and one that is not: it may go on
  const element = (name) => document.getElementById(name);

  class Runs {
    constructor() {
      this.number = null;
      element("runs-form").addEventListener("submit", (event) => {
        event.preventDefault();
        this.open(element("runs-path").value);
      });
    }

    /* The page shows a part of it: all folders, or one. */
    show(number) {
      this.list();
      if (number === this.number) return;
      this.number = number;
      this.run?.remove();
      this.run = number === null ? null : new Run(number, element("run"));
    }

    hide() {
      this.run?.remove();
      this.run = this.number = null;
    }

    async list() {
      try {
        const { runs } = await ask("api/runs");
        element("runs-about").textContent = runs.length ? "" : "There is none below runs/ yet.";
        element("runs-list").replaceChildren(...runs.map((run) => make("li", "", this.link(run))));
      } catch (error) {
        complain(error.message);
      }
    }

    link({ run, name }) {
      const made = make("a", "", name);
      made.href = `#run=${run}`;
      if (run === this.number) made.setAttribute("aria-current", "true");
      return made;
    }

    async open(path) {
      complain("");
      try {
        const { run } = await ask("api/runs/open", { path });
        location.hash = `run=${run}`;
      } catch (error) {
        complain(error.message);
      }
    }
  }

  function complain(text) {
    element("runs-trouble").textContent = text;
    element("runs-trouble").hidden = !text;
  }

  /* One run, looked at again and again. */
  class Run {
    constructor(number, place) {
      this.number = number;
      this.place = place;
      this.setting = null;
      this.start = 0;
      this.problem = ""; // the row that is open
      this.stored = -1; // rows of the setting when they were last shown
      this.heading = make("h2");
      this.state = make("p", "run-state");
      this.state.setAttribute("role", "status");
      this.about = make("p", "faint");
      this.warnings = make("div");
      this.settings = make("div");
      this.rows = make("div");
      this.detail = make("div");
      const parts = [this.heading, this.state, this.about, this.warnings, this.settings];
      place.replaceChildren(...parts, this.detail, this.rows);
      place.hidden = false;
      this.look();
    }

    remove() {
      clearTimeout(this.timer);
      this.gone = true;
      this.view?.remove();
      this.place.hidden = true;
      this.place.replaceChildren();
    }

    async look() {
      const began = performance.now();
      let writing = false;
      if (!document.hidden) writing = await this.lookNow();
      if (this.gone) return;
      const took = performance.now() - began;
      this.timer = setTimeout(() => this.look(), Math.max(writing ? OFTEN : SELDOM, 4 * took));
    }

    async lookNow() {
      try {
        const found = await ask(`api/runs/${this.number}`);
        if (this.gone) return false;
        this.setting ??= found.settings[0]?.number ?? null;
        this.draw(found);
        await this.drawRows(found.settings);
        return found.writing;
      } catch (error) {
        this.state.textContent = error.message;
        return false;
      }
    }

    draw({ name, writing, victim, data, warnings, settings }) {
      this.heading.textContent = name;
      const done = settings.every(({ stored, problems }) => stored >= problems);
      const rest = settings.length && done ? "all is stored" : "no run is writing";
      this.state.textContent = writing ? "a run is writing" : rest;
      this.state.classList.toggle("writing", writing);
      this.about.textContent = victim ? `${victim} on ${data}` : "no attack has begun yet";
      this.warnings.replaceChildren(...warnings.map((text) => make("p", "notice", text)));
      this.drawSettings(settings, done);
    }

    drawSettings(settings, done) {
      const heads = ["attack*", "goal*", "pixels", "queries", "done", "ASR %", "results*"];
      const lines = settings.map((setting) => this.line(setting));
      const warning = done ? "" : " Successes end earlier than failures: an unfinished rate is too high.";
      const caption = `Attack success rate with its 95 % interval.${warning}`;
      replace(this.settings, ...(settings.length ? [table("", caption, heads, lines)] : []));
    }

    line({ number, name, goal, pixels, queries, stored, problems, counts, asr }) {
      const choose = button(name, () => this.choose(number));
      choose.setAttribute("aria-pressed", number === this.setting);
      const bar = make("progress");
      [bar.max, bar.value] = [Math.max(1, problems), stored];
      bar.setAttribute("aria-label", `${name}: done`);
      const results = Object.entries(counts).map(([status, count]) => `${count} ${status}`);
      return make(
        "tr",
        "",
        header(choose),
        make("td", "word", goal),
        make("td", "", `${pixels}`),
        make("td", "", `${queries}`),
        make("td", "run-done", bar, ` ${stored}/${problems}`),
        make("td", "", ...rate(asr)),
        make("td", "word", results.join(", ")),
      );
    }

    choose(setting) {
      this.setting = setting;
      this.start = 0;
      this.stored = -1;
      this.lookNow();
    }

    /* The rows of the chosen setting, if there are others than are shown. */
    async drawRows(settings) {
      const mine = settings.find(({ number }) => number === this.setting);
      if (!mine || mine.stored === this.stored) return;
      const { setting, start } = this;
      const found = await ask(`api/runs/${this.number}/rows?setting=${setting}&start=${start}`);
      if (this.gone || setting !== this.setting || start !== this.start) return;
      this.stored = mine.stored;
      const heads = ["image*", "true*", "target*", "seen as*", "result*", "queries", "pixels", "trace"];
      const lines = found.rows.map((row) => this.rowLine(row));
      const caption = `Rows of ${mine.goal} ${mine.name}: choose one to see it.`;
      replace(this.rows, table("rows", caption, heads, lines), this.pager(found));
    }

    rowLine(row) {
      const open = button(row.image, () => {}); // the whole line can be clicked
      const words = [row.label_name, row.target_name ?? "any other", row.seen_name, row.status];
      const line = make(
        "tr",
        "",
        header(open),
        ...words.map((word) => make("td", "word", word)),
        make("td", "", `${row.queries}`),
        make("td", "", `${row.pixels}`),
        make("td", "", row.traced ? "yes" : "-"),
      );
      line.dataset.problem = row.problem;
      line.classList.toggle("chosen", row.problem === this.problem);
      line.addEventListener("click", () => this.open(row.problem));
      return line;
    }

    pager({ total, start, rows }) {
      const last = start + rows.length;
      const turn = (by) => () => {
        this.start = Math.max(0, start + by);
        this.stored = -1;
        this.lookNow();
      };
      const back = button("Back", turn(-50));
      const on = button("More", turn(50));
      back.disabled = start === 0;
      on.disabled = last >= total;
      const told = make("p", "told faint", total ? `${start + 1} to ${last} of ${total}` : "none yet");
      return make("div", "pager", told, back, on);
    }

    /* A row with its pictures, and its search if there is a trace. */
    async open(problem) {
      this.problem = problem;
      for (const one of this.rows.querySelectorAll("[data-problem]")) {
        one.classList.toggle("chosen", one.dataset.problem === problem);
      }
      try {
        const row = await ask(`api/runs/${this.number}/rows/${problem}?setting=${this.setting}`);
        if (!this.gone && problem === this.problem) this.drawRow(row);
      } catch (error) {
        this.detail.replaceChildren(make("p", "notice", error.message));
      }
    }

    drawRow(row) {
      this.view?.remove();
      const heading = make("h3", "", row.image);
      heading.tabIndex = -1;
      const aim = row.target_name === null ? "any other class" : row.target_name;
      const said = `${row.title}: from ${row.label_name} to ${aim}; ${row.status} after ${row.queries} queries`;
      const notes = [row.error, row.remark, row.trace ? "" : NO_TRACE].filter(Boolean);
      const stage = make("div");
      const remarks = notes.map((note) => make("p", "faint", note));
      const parts = [heading, make("p", "", said), ...remarks, stage];
      this.detail.replaceChildren(make("article", "lane", ...parts));
      const original = row.original && Uint8Array.from(atob(row.original), (level) => level.charCodeAt(0));
      const { shape, names, label, target, limit } = row;
      this.view = brusleTraceView(stage, { shape, original, names, label, target, limit });
      if (row.trace) this.view.setTrace(row.trace);
      else this.view.setEdits(row.edits);
      heading.focus();
      heading.scrollIntoView({ block: "nearest" });
    }
  }

  const NO_TRACE = "No trace of this search was kept: brusle evaluate --trace keeps them.";

  /* Put something new into a place; the button that has the focus there keeps it. */
  function replace(place, ...content) {
    const number = [...place.querySelectorAll("button")].indexOf(document.activeElement);
    place.replaceChildren(...content);
    if (number >= 0) place.querySelectorAll("button")[number]?.focus({ preventScroll: true });
  }

  function header(content) {
    const made = make("th", "", content);
    made.scope = "row";
    return made;
  }

  /* "61.0 [54, 68]" in percent. */
  function rate({ value, low, high }) {
    if (value === null) return ["-"];
    const whole = [low, high].map((end) => (100 * end).toFixed(0));
    return [make("b", "", (100 * value).toFixed(1)), " ", make("small", "", `[${whole.join(", ")}]`)];
  }

  /* Heads that end with a star stand above words. */
  function table(kind, caption, heads, lines) {
    const cells = heads.map((head) => {
      const made = make("th", head.endsWith("*") ? "word" : "number", head.replace("*", ""));
      made.scope = "col";
      return made;
    });
    const head = make("thead", "", make("tr", "", ...cells));
    const title = make("caption", "", make("span", "", caption));
    const made = make("div", "scroll", make("table", kind, title, head, make("tbody", "", ...lines)));
    made.tabIndex = 0;
    made.setAttribute("role", "region");
    made.setAttribute("aria-label", caption);
    return made;
  }

  return Runs;
})();
