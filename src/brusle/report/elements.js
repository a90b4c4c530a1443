/* Elements of pages, made piece by piece: what is put into them is text, never markup. */
"use strict";

const brusleElements = (() => {
  // the name of SVG's elements is an address, and pages hold none
  const SVG = new DOMParser().parseFromString("<svg></svg>", "text/html").body.firstChild.namespaceURI;

  /* An element of a class (or none) that holds texts and other elements. */
  function make(name, kind = "", ...content) {
    const made = document.createElement(name);
    if (kind) made.className = kind;
    made.append(...content);
    return made;
  }

  function svg(name, attributes, text = "") {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.textContent = text;
    return made;
  }

  function button(text, act) {
    const made = make("button", "", text);
    made.type = "button";
    made.addEventListener("click", act);
    return made;
  }

  /* "1 pixel", "2 pixels", "2 queries". */
  function counted(number, noun) {
    const plural = noun.endsWith("y") ? `${noun.slice(0, -1)}ies` : `${noun}s`;
    return `${number} ${number === 1 ? noun : plural}`;
  }

  return { make, svg, button, counted };
})();
