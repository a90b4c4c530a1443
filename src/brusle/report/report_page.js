/* Puts the parts of a report to work, and shows what needs them. */
"use strict";

(() => {
  const { make } = brusleElements;
  const { RowData, read } = brusleRowData;
  for (const hidden of document.querySelectorAll("[data-scripted]")) hidden.hidden = false;
  brusleTables.offerAll();
  brusleCurveValues.readAll(read("curve-data"));
  const data = new RowData();
  const explorer = new brusleExplorer.Explorer(document.getElementById("explorer"), data);

  /* A click on an example opens its row. */
  for (const example of document.querySelectorAll("figure[data-row]")) {
    const key = example.dataset.row;
    if (!data.find(key)) continue;
    const link = make("a", "", "Look closer");
    link.href = `#row=${key}`;
    example.querySelector("figcaption").append(make("br"), link);
    example.classList.add("open");
    example.addEventListener("click", (event) => {
      event.preventDefault();
      explorer.open(key);
    });
  }
})();
