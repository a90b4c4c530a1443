/* The page: what is chosen, the attacks that run, and which part is shown. */
"use strict";

(() => {
  const { ask } = brusleAsking;
  const element = (name) => document.getElementById(name);
  const value = (name) => element(name).value;
  const whole = (name) => Number.parseInt(value(name), 10);

  const images = new BrusleImages(refresh);
  const runs = new BrusleRuns();
  let offers = null;
  let names = []; // of the classes, as the targets have them
  let lanes = [];

  /* The attacks that go on, and whether all of these wait. */
  const going = () => lanes.filter(({ state }) => state !== "over");
  const isPaused = () => going().length > 0 && going().every(({ state }) => state === "paused");

  /* The classes of the chosen image; what was chosen of them stays if they are the same. */
  function aim() {
    if (images.chosen === null || images.chosen.names.join() === names.join()) return;
    names = images.chosen.names;
    const options = names.map((name, at) => new Option(name, at));
    element("target").replaceChildren(new Option("any other class", ""), ...options);
    element("target").parentElement.hidden = names.length === 0;
    element("target-choice").hidden = names.length > 0;
  }

  function refresh() {
    aim();
    const some = going().length > 0;
    element("start").disabled = some || images.chosen === null;
    const heard = some && going().every(({ number }) => number !== null);
    element("pause").disabled = element("end").disabled = !heard;
    element("pause").textContent = isPaused() ? "Go on" : "Pause";
    element("step").disabled = !isPaused();
  }

  function complain(name, text) {
    element(name).textContent = text;
    element(name).hidden = !text;
  }

  async function begin() {
    show();
    try {
      offers = await ask("api/offers");
    } catch (error) {
      complain("trouble", error.message);
      return;
    }
    const named = (things) => things.map(({ name }, at) => new Option(name, at));
    const attacks = offers.attacks.map(({ name }) => new Option(name, name));
    element("victim").replaceChildren(...named(offers.victims));
    element("attack-name").replaceChildren(...attacks.map((option) => option.cloneNode(true)));
    element("other-name").replaceChildren(new Option("nothing", ""), ...attacks);
    images.offer(offers.data);
    describe();
    await meet();
  }

  /* The chosen victim, for which images are framed. */
  async function meet() {
    const number = whole("victim");
    images.forget();
    element("victim-about").textContent = offers.victims[number].summary;
    try {
      const victim = await ask(`api/victims/${number}`);
      if (number !== whole("victim")) return;
      complain("refused", "");
      await images.frameFor(number, victim);
    } catch (error) {
      complain("refused", error.message);
    }
  }

  function describe() {
    const { summary } = offers.attacks.find(({ name }) => name === value("attack-name"));
    element("attack-about").textContent = summary;
    element("other-choice").hidden = !value("other-name");
  }

  function target() {
    const text = names.length ? value("target") : value("target-number");
    return text === "" ? null : Number.parseInt(text, 10);
  }

  /* Start one attack, or two on the same image. */
  function start() {
    const asked = {
      image: images.chosen.image,
      minimal: element("minimal").checked,
      pixels: whole("pixels"),
      queries: whole("queries"),
      seed: whole("seed"),
      target: target(),
      pace: Number(value("pace")),
    };
    const chosen = [{ attack: value("attack-name"), options: value("attack-options").trim() }];
    if (value("other-name")) {
      chosen.push({ attack: value("other-name"), options: value("other-options").trim() });
    }
    for (const lane of lanes) lane.remove();
    lanes = chosen.map(() => new BrusleLane(images.chosen, refresh));
    element("empty").hidden = true;
    element("lanes").append(...lanes.map((lane) => lane.element));
    element("lanes").classList.toggle("two", lanes.length > 1);
    refresh();
    lanes.forEach((lane, at) => lane.run({ ...asked, ...chosen[at] }));
    const { top } = element("lanes").getBoundingClientRect();
    if (top > innerHeight / 2) element("lanes").scrollIntoView(); // below the form, on a phone
  }

  function want(what) {
    for (const lane of going()) lane.want(what);
  }

  /* "#attack", "#runs" or "#run=3". */
  function show() {
    const asked = location.hash.slice(1);
    const opened = /^run=(\d+)$/.exec(asked);
    const isRuns = opened !== null || asked === "runs";
    element("attacking").hidden = isRuns;
    element("running").hidden = !isRuns;
    for (const link of document.querySelectorAll("nav a")) {
      const here = (link.hash === "#runs") === isRuns;
      if (here) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    if (isRuns) runs.show(opened === null ? null : Number(opened[1]));
    else runs.hide();
  }

  element("victim").addEventListener("change", meet);
  element("attack-name").addEventListener("change", describe);
  element("other-name").addEventListener("change", describe);
  element("choice").addEventListener("submit", (event) => {
    event.preventDefault();
    start();
  });
  element("pause").addEventListener("click", () => want({ do: isPaused() ? "go" : "pause" }));
  element("step").addEventListener("click", () => want({ do: "step" }));
  element("end").addEventListener("click", () => want({ do: "end" }));
  element("pace").addEventListener("change", () => want({ do: "pace", pace: Number(value("pace")) }));
  addEventListener("hashchange", show);
  begin();
})();
