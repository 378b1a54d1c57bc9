// What scrolls sideways can be reached and scrolled by keyboard.
(() => {
  "use strict";
  const mark = () => {
    for (const part of document.querySelectorAll("main :is(table, div.math, pre, .cell_output)")) {
      if (part.scrollWidth > part.clientWidth + 1) part.tabIndex = 0;
      else if (part.getAttribute("tabindex") === "0") part.removeAttribute("tabindex");
    }
  };
  mark();
  addEventListener("load", mark);
  addEventListener("resize", mark);
})();
