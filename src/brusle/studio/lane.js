/* One attack, from the first query to the verdict.

   const lane = new BrusleLane(picture, changed);  // called when its state changes
   lane.element     to be put into the page
   lane.run(asked)  what `api/attacks` takes; a promise that it is over
   lane.want(what)  {do: "pause" | "go" | "step" | "end" | "pace", pace}
   lane.state       "waiting", "going", "paused" or "over" */
"use strict";

const BrusleLane = (() => {
  const { make } = brusleElements;
  const { ask, listen } = brusleAsking;

  class Lane {
    constructor(picture, changed) {
      Object.assign(this, { picture, changed });
      this.names = []; // of labels; it grows if the victim names more
      this.state = "waiting";
      this.number = null;
      this.links = [];
      this.heading = make("h3", "", "...");
      this.aim = make("p", "faint");
      this.bar = make("progress");
      this.bar.setAttribute("aria-label", "Queries spent");
      this.count = make("p", "lane-count");
      this.told = make("p", "lane-told");
      this.told.setAttribute("role", "status");
      this.stage = make("div");
      this.end = make("div", "lane-end");
      const parts = [this.heading, this.aim, this.bar, this.count, this.told, this.stage, this.end];
      this.element = make("article", "lane", ...parts);
    }

    async run(asked) {
      this.heading.textContent = asked.attack;
      this.limit = asked.queries;
      this.spend(0);
      try {
        await listen("api/attacks", asked, (message) => this.hear(message));
        if (this.state !== "over") this.verdict("error", "the studio has gone: start it again");
      } catch (error) {
        this.verdict("error", error.message);
      }
    }

    want(what) {
      if (this.number !== null && this.state !== "over") {
        ask(`api/attacks/${this.number}`, what).catch(() => {}); // `listen` hears if it is gone
      }
    }

    remove() {
      this.view?.remove();
      for (const link of this.links) URL.revokeObjectURL(link);
      this.element.remove();
    }

    /* Each kind of message has a method. */
    hear(message) {
      this[`on_${message.kind}`](message);
    }

    on_waiting({ attack }) {
      this.number = attack;
      this.changed(); // from now on it can be told something
    }

    on_names({ names }) {
      this.names.push(...names.slice(this.names.length));
    }

    on_began({ attack, limit, label, label_name, target, target_name }) {
      this.heading.textContent = attack;
      this.limit = limit;
      this.aim.textContent =
        target === null ? `from ${label_name} to any other class` : `from ${label_name} to ${target_name}`;
      const { shape, original } = this.picture;
      const known = { shape, original, names: this.names, label, target, limit };
      this.view = brusleTraceView(this.stage, known);
      this.become("going");
    }

    on_improved({ step }) {
      this.view.append(step);
    }

    on_point({ query, loss }) {
      this.view.point(query, loss);
      this.spend(query);
    }

    on_belief({ belief, meaning }) {
      this.view.belief(belief, meaning);
    }

    on_paused({ query }) {
      this.spend(query);
      this.become("paused");
    }

    on_going() {
      this.become("going");
    }

    on_over({ query, how, told, facts, trace, ...rest }) {
      this.spend(facts?.queries ?? query);
      if (trace) this.view.setTrace(trace);
      this.verdict(facts?.status ?? how, told);
      if (facts) this.end.append(make("p", "faint", booked(facts.ledger)));
      if (rest.original) this.offer(rest);
    }

    spend(query) {
      this.bar.max = this.limit;
      this.bar.value = query;
      const waits = this.state === "paused" ? ", paused" : "";
      this.count.textContent = `query ${query} of ${this.limit}${waits}`;
      this.query = query;
    }

    become(state) {
      this.state = state;
      this.spend(this.query);
      this.changed();
    }

    verdict(kind, text) {
      this.told.dataset.kind = kind;
      const rest = text.startsWith(kind) ? text.slice(kind.length).replace(/^:/, "").trim() : text;
      this.told.replaceChildren(make("b", "", kind), ` ${rest}`);
      this.become("over");
    }

    /* The images as files, and the command that does the same. */
    offer({ file, original, adversarial, command }) {
      const name = file.replace(/\.png$/, "-adversarial.png");
      const links = [this.link(file, original)];
      if (adversarial) links.push(this.link(name, adversarial));
      this.end.append(make("p", "lane-files", "Save ", ...links));
      if (!command) return;
      const summary = make("summary", "", "The same from the command line");
      this.end.append(make("details", "", summary, make("pre", "", command)));
    }

    link(name, content) {
      const bytes = Uint8Array.from(atob(content), (byte) => byte.charCodeAt(0));
      const address = URL.createObjectURL(new Blob([bytes], { type: "image/png" }));
      this.links.push(address);
      const made = make("a", "", name);
      made.href = address;
      made.download = name;
      return made;
    }
  }

  /* Where the queries went: "booked: 1 clean, 2 initial, 118 search, 1 verify". */
  function booked(ledger) {
    const spent = Object.entries(ledger).filter(([, count]) => count);
    return `booked: ${spent.map(([what, count]) => `${count} ${what}`).join(", ")}`;
  }

  return Lane;
})();
