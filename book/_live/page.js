// What scrolls sideways can be reached and scrolled by keyboard; and what the theme measures at once waits.
(() => {
  "use strict";
  const PARTS = "main :is(table, div.math, pre, .cell_output, .cell_output > .output, .figure-svg, .live-face)";
  // On a small screen, sections far from it are not laid out (course.css); asking for their sizes would do it. What is
  // in them can be reached until it is known not to scroll.
  const drawn = part => part.checkVisibility?.({ contentVisibilityAuto: true }) ?? true;
  const mark = parts => {
    const scroll = parts.map(part => !drawn(part) || part.scrollWidth > part.clientWidth + 1); // all read before any is changed
    parts.forEach((part, i) => {
      if (scroll[i]) part.tabIndex = 0;
      else if (part.getAttribute("tabindex") === "0") part.removeAttribute("tabindex");
    });
  };
  const all = () => [...document.querySelectorAll(PARTS)];
  // After the browser has laid out the page: asking earlier would make it do so once more.
  const later = () => requestAnimationFrame(() => setTimeout(() => mark(all())));
  // Fonts widen text after it stands; folds that open, cells that run, screens that turn and sections that come near
  // change boxes.
  document.fonts?.ready.then(later);
  for (const kind of ["load", "resize"]) addEventListener(kind, later);
  const watch = new ResizeObserver(entries => mark(entries.map(entry => entry.target)));
  for (const part of all()) watch.observe(part);

  if (!matchMedia("(max-width: 1199.98px)").matches) return;
  // Sections around the one that a link leads to get their true heights only now, and must not push it away.
  const article = document.querySelector(".bd-article");
  let hold = 0;
  const keep = () => { hold = performance.now() + 1000; };
  const leave = () => { hold = 0; };  // the reader goes on
  for (const kind of ["load", "hashchange"]) addEventListener(kind, keep);
  for (const kind of ["wheel", "touchstart", "keydown", "pointerdown"]) addEventListener(kind, leave, { passive: true });
  if (article) new ResizeObserver(() => {
    if (performance.now() < hold) document.getElementById(location.hash.slice(1))?.scrollIntoView();
  }).observe(article);
  // The list of sections lies over the text until one is chosen.
  document.getElementById("pst-secondary-sidebar-modal")?.addEventListener("click", ({ target, currentTarget }) => {
    if (target.closest('a[href^="#"]')) currentTarget.close();
  });
  // The theme marks the place in the list of sections, for which it asks where each of them is. Where the list is shut
  // away, that waits until it is opened.
  const spied = document.body;
  delete spied.dataset.bsSpy;
  document.querySelector(".secondary-toggle")?.addEventListener("click", () => bootstrap.ScrollSpy.getOrCreateInstance(spied), { once: true });
})();
