// What scrolls sideways can be reached and scrolled by keyboard.
(() => {
  "use strict";
  const PARTS = "main :is(table, div.math, pre, .cell_output, .cell_output > .output, .figure-svg, .live-face)";
  const mark = () => {
    for (const part of document.querySelectorAll(PARTS)) {
      if (part.scrollWidth > part.clientWidth + 1) part.tabIndex = 0;
      else if (part.getAttribute("tabindex") === "0") part.removeAttribute("tabindex");
    }
  };
  mark();
  // Fonts widen text after it stands; folds that open, cells that run and screens that turn change boxes.
  document.fonts?.ready.then(mark);
  addEventListener("load", mark);
  const watch = new ResizeObserver(mark);
  for (const part of document.querySelectorAll(PARTS)) watch.observe(part);
})();
