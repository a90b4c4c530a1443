/* All rows of a run: filters, order, pages, and one of them looked at. The address says which. */
"use strict";

const brusleExplorer = (() => {
  const { make, button, counted } = brusleElements;
  const { OUTCOMES } = brusleRowData;
  const PAGE = 50; // rows that are shown at a time
  const FILTERS = ["attack", "setting", "goal", "outcome", "true", "target", "seen", "text"];

  class Explorer {
    constructor(element, data) {
      this.data = data;
      this.columns = columnsOf(data);
      this.choices = this.choicesOf();
      this.view = new brusleRowView.RowView(data, (step) => this.turn(step), () => this.close());
      this.list = make("tbody");
      this.told = make("p", "told");
      this.told.setAttribute("role", "status");
      this.build(element);
      this.apply(this.readAddress());
      addEventListener("hashchange", () => {
        if (location.hash.includes("=") || !location.hash) this.apply(this.readAddress());
      });
    }

    /* Filters with what can be chosen, as pairs of a value and its name. */
    choicesOf() {
      const { rows, facts } = this.data;
      const labels = (which) => {
        const found = [...new Set(rows.map(which))].filter((label) => label !== null);
        return found.sort((a, b) => a - b).map((label) => [String(label), this.data.name(label)]);
      };
      const each = (texts) => [...new Set(texts)].map((text) => [text, text]);
      const seen = new Set(rows.map(({ outcome }) => outcome));
      return {
        attack: each(facts.settings.map(({ attack }) => attack)),
        setting: facts.settings.map(({ number, title }) => [String(number), title]),
        goal: each(facts.settings.map(({ goal }) => goal)),
        outcome: each(OUTCOMES.filter((outcome) => seen.has(outcome))),
        true: labels(({ label }) => label),
        target: labels(({ target }) => target),
        seen: labels(({ after }) => after),
      };
    }

    build(element) {
      const names = { true: "true class", seen: "seen as" };
      this.controls = Object.fromEntries(Object.entries(this.choices).map(([name, choices]) => {
        const all = new Option("all", "");
        const made = make("select", "", all, ...choices.map(([value, text]) => new Option(text, value)));
        made.addEventListener("change", () => this.change({ [name]: made.value }));
        return [name, made];
      }));
      this.controls.text = make("input");
      this.controls.text.type = "search";
      this.controls.text.addEventListener("input", () => {
        this.change({ text: this.controls.text.value });
      });
      const filters = FILTERS.map((name) => {
        const made = make("label", "", make("span", "", names[name] ?? name), this.controls[name]);
        made.hidden = name !== "text" && this.choices[name].length < 2;
        return made;
      });
      const none = Object.fromEntries(FILTERS.map((name) => [name, ""]));
      this.all = button("Show all", () => this.change(none));
      this.back = button("Previous", () => this.go(-1));
      this.on = button("Next", () => this.go(1));
      const caption = make("caption", "", make("span", "", "A row for each image and setting."));
      this.heads = this.columns.map((column) => this.head(column));
      const head = make("thead", "", make("tr", "", ...this.heads));
      const table = make("table", "rows", caption, head, this.list);
      this.list.addEventListener("click", (event) => this.click(event));
      const scroll = make("div", "scroll", table);
      scroll.tabIndex = 0;
      scroll.setAttribute("role", "region");
      scroll.setAttribute("aria-label", "All rows");
      element.append(
        make("div", "filters", ...filters),
        this.view.element,
        make("div", "pager", this.told, this.all, this.back, this.on),
        scroll,
        brusleTables.offer("Copy these rows as CSV", "rows", () => this.lines()),
      );
      const { left } = this.data.facts;
      const more = `${counted(left, "row")} more are not in this page: brusle export has all.`;
      if (left) element.append(make("p", "faint", more));
    }

    head(column) {
      const made = make("th", column.kind, button(column.title, () => {
        const down = this.state.sort === column.name ? "-" : "";
        this.change({ sort: down + column.name });
      }));
      made.scope = "col";
      return made;
    }

    /* What the address asks for; what it says that nobody knows is left out. */
    readAddress() {
      const asked = new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");
      const state = { sort: "", page: 0, row: asked.get("row") ?? "" };
      for (const name of FILTERS) {
        const value = asked.get(name) ?? "";
        const known = name === "text" || this.choices[name].some(([choice]) => choice === value);
        state[name] = known ? value : "";
      }
      const sort = asked.get("sort") ?? "";
      if (this.columns.some(({ name }) => name === sort.replace("-", ""))) state.sort = sort;
      state.page = Math.max(0, Math.trunc(Number(asked.get("page") ?? 1)) - 1) || 0;
      return state;
    }

    address() {
      const said = new URLSearchParams();
      for (const name of [...FILTERS, "sort", "row"]) {
        if (this.state[name]) said.set(name, this.state[name]);
      }
      if (this.state.page) said.set("page", this.state.page + 1);
      return `#${said}`;
    }

    /* Some of the state is new, and the address says so; after a `step` one can go back. */
    change(part, step = false) {
      this.apply({ ...this.state, page: 0, ...part });
      try {
        history[step ? "pushState" : "replaceState"](null, "", this.address());
      } catch {
        // a page inside of another may have no address to change
      }
    }

    apply(state) {
      const before = this.state?.row ?? "";
      this.state = state;
      for (const name of FILTERS) this.controls[name].value = state[name];
      this.found = this.sorted(this.data.rows.filter(this.test()));
      this.state.page = Math.min(state.page, Math.max(0, Math.ceil(this.found.length / PAGE) - 1));
      this.drawRow();
      this.drawList();
      if (this.state.row && this.state.row !== before) this.attend();
    }

    test() {
      const { attack, setting, goal, outcome, target, seen, text } = this.state;
      const label = this.state.true;
      const word = text.trim().toLowerCase();
      return (row) =>
        (!attack || row.setting.attack === attack) &&
        (!setting || String(row.setting.number) === setting) &&
        (!goal || row.setting.goal === goal) &&
        (!outcome || row.outcome === outcome) &&
        (!label || String(row.label) === label) &&
        (!target || String(row.target) === target) &&
        (!seen || String(row.after) === seen) &&
        (!word || this.words(row).includes(word));
    }

    /* All words of a row, to look for some. */
    words(row) {
      const texts = () => [...this.columns.map((column) => column.text(row)), row.error];
      row.words ??= texts().join("\n").toLowerCase();
      return row.words;
    }

    sorted(rows) {
      const name = this.state.sort.replace("-", "");
      const column = this.columns.find((one) => one.name === name);
      if (!column) return rows;
      const turn = this.state.sort.startsWith("-") ? -1 : 1;
      const keys = new Map(rows.map((row) => [row, column.text(row)]));
      const compare = (a, b) => (a < b ? -1 : Number(a > b));
      return rows.sort((a, b) => turn * compare(keys.get(a), keys.get(b)) || a.at - b.at);
    }

    drawList() {
      const { page, sort, row } = this.state;
      const shown = this.found.slice(page * PAGE, (page + 1) * PAGE);
      this.list.replaceChildren(...shown.map((one) => this.line(one, one.key === row)));
      this.heads.forEach((head, at) => {
        const { name } = this.columns[at];
        head.ariaSort = { [name]: "ascending", [`-${name}`]: "descending" }[sort] ?? "none";
      });
      const total = counted(this.found.length, "row");
      const first = page * PAGE + 1;
      const range = `${first} to ${first + shown.length - 1} of ${total}`;
      this.told.textContent = shown.length ? range : "No row is like that.";
      this.all.hidden = FILTERS.every((filter) => !this.state[filter]);
      this.back.disabled = page === 0;
      this.on.disabled = (page + 1) * PAGE >= this.found.length;
    }

    line(row, chosen) {
      const link = make("a", "", row.image);
      link.href = `#row=${row.key}`;
      const head = make("th", "", link);
      head.scope = "row";
      const cells = this.columns.slice(1).map((column) => make("td", column.kind, column.text(row)));
      const made = make("tr", chosen ? "chosen" : "", head, ...cells);
      made.dataset.row = row.key;
      if (chosen) link.setAttribute("aria-current", "true");
      return made;
    }

    lines() {
      const cells = (row) => this.columns.map((column) => String(column.text(row)));
      return [this.columns.map(({ title }) => title), ...this.found.map(cells)];
    }

    click(event) {
      const line = event.target.closest("tr");
      if (!line || event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      this.open(line.dataset.row);
    }

    open(key) {
      this.change({ row: key, page: this.state.page }, true);
    }

    close() {
      const { row, page } = this.state;
      this.change({ row: "", page }, true);
      const line = [...this.list.rows].find(({ dataset }) => dataset.row === row);
      line?.querySelector("a").focus();
    }

    turn(step) {
      const at = this.found.findIndex(({ key }) => key === this.state.row) + step;
      this.change({ row: this.found[at].key, page: Math.floor(at / PAGE) });
    }

    go(step) {
      this.change({ page: this.state.page + step });
    }

    drawRow() {
      const row = this.data.find(this.state.row);
      if (!row) {
        this.state.row = "";
        this.view.close();
        return;
      }
      const at = this.found.indexOf(row);
      this.view.open(row, { first: at <= 0, last: at < 0 || at === this.found.length - 1 });
    }

    attend() {
      this.view.element.scrollIntoView({ block: "start" });
      this.view.heading.focus({ preventScroll: true });
    }
  }

  /* What a row has in each column, and is sorted by: numbers as numbers. */
  function columnsOf(data) {
    const name = (which) => (row) => data.name(row[which]);
    const columns = [
      { name: "image", title: "image", text: (row) => row.image },
      { name: "setting", title: "attack", kind: "text", text: (row) => row.setting.title },
      { name: "true", title: "true class", kind: "word", text: name("label") },
      { name: "target", title: "target", kind: "word", text: name("target") },
      { name: "seen", title: "seen as", kind: "word", text: name("after") },
      { name: "outcome", title: "outcome", kind: "word", text: (row) => row.outcome },
      { name: "queries", title: "queries", kind: "number", text: (row) => row.queries },
      { name: "pixels", title: "changed pixels", kind: "number", text: (row) => row.pixels },
    ];
    const targeted = data.rows.some(({ target }) => target !== null);
    return columns.filter((column) => targeted || column.name !== "target");
  }

  return { Explorer };
})();
