// What scrolls sideways can be reached and scrolled by keyboard.
(() => {
  "use strict";
  const PARTS = "main :is(table, div.math, pre, .cell_output, .cell_output > .output, .figure-svg, .live-face)";
  const mark = () => {
    const parts = [...document.querySelectorAll(PARTS)];
    const scroll = parts.map(part => part.scrollWidth > part.clientWidth + 1); // all read before any is changed
    parts.forEach((part, i) => {
      if (scroll[i]) part.tabIndex = 0;
      else if (part.getAttribute("tabindex") === "0") part.removeAttribute("tabindex");
    });
  };
  // After the browser has laid out the page: asking earlier would make it do so once more.
  const later = () => requestAnimationFrame(() => setTimeout(mark));
  // Fonts widen text after it stands; folds that open, cells that run and screens that turn change boxes.
  document.fonts?.ready.then(later);
  addEventListener("load", later);
  const watch = new ResizeObserver(mark);
  for (const part of document.querySelectorAll(PARTS)) watch.observe(part);
})();
