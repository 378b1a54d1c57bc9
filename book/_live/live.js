// Carries values between a page and Python in a worker. No number is computed here.
(() => {
  "use strict";
  const script = document.currentScript;
  const root = new URL(".", script.src);
  const LOADING = "Starting Python in this page …";
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];

  // The worker ------------------------------------------------------------------------------------
  let worker = null, started = null, waiting = new Map(), count = 0;

  function stop(reason) {
    worker?.terminate();
    worker = started = null;
    for (const { reject } of waiting.values()) reject(new Error(reason));
    waiting = new Map();
  }

  function start() {
    if (started) return started;
    started = new Promise((resolve, reject) => {
      const address = new URL("live-worker.js", root);
      for (const name of ["library", "snapshot"]) address.searchParams.set(name, script.dataset[name]);
      worker = new Worker(address, { type: "module" });
      const fail = why => { const error = `Python did not start in this page (${why}). What you see is the stored state.`; reject(new Error(error)); stop(error); };
      worker.onerror = event => { event.preventDefault(); fail(event.message || "its script could not be loaded"); };
      worker.onmessage = ({ data }) => {
        if (data.started) return resolve();
        if (data.failed) return fail(data.failed);
        const call = waiting.get(data.id);
        waiting.delete(data.id);
        if (call) "value" in data ? call.resolve(data.value) : call.reject(new Error(data.error));
      };
    });
    started.catch(() => {});
    return started;
  }

  async function ask(name, ...args) {
    await start();
    const id = ++count;
    return new Promise((resolve, reject) => {
      waiting.set(id, { resolve, reject });
      worker.postMessage({ id, name, args });
    });
  }

  const plain = html => new DOMParser().parseFromString(html, "text/html").body.textContent;
  const say = (place, text, bad = false) => {
    if (place.textContent !== text) place.textContent = text;
    place.classList.toggle("live-bad", bad);
  };

  function save(name, text) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  // Explorers -------------------------------------------------------------------------------------
  function explorer(place) {
    const address = place.dataset.explorer, key = place.id;
    const form = place.querySelector("form"), face = place.querySelector(".live-face"), status = place.querySelector(".live-status");
    const stored = face.innerHTML, first = status.textContent;
    const fields = Object.groupBy ? Object.groupBy(all("[data-name]", form), f => f.dataset.name)
      : all("[data-name]", form).reduce((o, f) => ((o[f.dataset.name] ??= []).push(f), o), {});
    let state = {}, drawing = null, stale = false, talk = 0;

    function stand(name, { text, position }) {
      for (const field of fields[name]) {
        if (field.type === "range") {
          if (field !== document.activeElement || field.dataset.stops) field.value = position;
          field.setAttribute("aria-valuetext", `${text} ${field.dataset.unit}`.trim());
        } else if (field !== document.activeElement || field.tagName === "SELECT" || field.dataset.done) field.value = text;
        field.removeAttribute("aria-invalid");
      }
    }

    function remember(controls) {
      const address = new URL(location);
      for (const [name, { text, default: same }] of Object.entries(controls))
        same ? address.searchParams.delete(`${key}.${name}`) : address.searchParams.set(`${key}.${name}`, text);
      history.replaceState(history.state, "", address);
    }

    // What the reader caused is said at once; what a drawing says waits, so that a dragged slider speaks once.
    const tell = (text, bad = false) => { clearTimeout(talk); say(status, text, bad); };

    async function drawOnce() {
      if (!place.dataset.live) say(status, LOADING);
      try {
        const wanted = state;
        const { html, controls, spoken } = await ask("face", address, wanted);
        face.innerHTML = html;
        for (const [name, control] of Object.entries(controls)) {
          if (wanted === state) stand(name, control);
          if (!control.default && wanted === state) state[name] = control.text;
        }
        remember(controls);
        place.dataset.live = "yes";
        place.dataset.draws = 1 + Number(place.dataset.draws || 0);
        clearTimeout(talk);
        status.classList.remove("live-bad");
        talk = setTimeout(() => say(status, plain(spoken)), 500);
      } catch (error) { tell(error.message, true); }
    }

    async function drawAll() {
      while (stale) { stale = false; await drawOnce(); }
      drawing = null;
    }

    // Resolves when the page shows the state, however many moves came while an earlier one was drawn.
    function draw() {
      stale = true;
      return drawing ??= drawAll();
    }

    const change = field => {
      const text = field.type === "range" && field.dataset.stops ? JSON.parse(field.dataset.stops)[field.value] : field.value;
      state = { ...state, [field.dataset.name]: text };
      for (const other of fields[field.dataset.name]) if (other !== field && other.type === "text") other.value = text;
      draw();
    };
    form.addEventListener("input", ({ target }) => { if (target.type === "range" || target.tagName === "SELECT") change(target); });
    form.addEventListener("change", ({ target }) => { if (target.type === "text") { target.dataset.done = "yes"; change(target); } });
    form.addEventListener("submit", event => event.preventDefault());
    for (const kind of ["pointerdown", "focusin"]) form.addEventListener(kind, () => {
      if (!started) { say(status, LOADING); start().then(() => { if (status.textContent === LOADING) say(status, "Python runs in this page. Move a slider."); }, error => say(status, error.message, true)); }
    }, { passive: true });
    form.addEventListener("click", async ({ target }) => {
      const what = target.dataset?.do;
      try {
        if (what === "reset") { state = {}; for (const f of all("[data-name]", form)) f.dataset.done = "yes"; await draw(); }
        if (what === "link") { await drawing; await copy(tell); }
        if (what === "csv" || what === "toml") save(`${key}.${what}`, await ask("table", address, state, what));
      } catch (error) { tell(error.message, true); }
    });

    form.querySelector("fieldset").disabled = false;
    const given = [...new URLSearchParams(location.search)].filter(([name]) => name.startsWith(`${key}.`));
    if (given.length) {
      for (const [name, text] of given) state[name.slice(key.length + 1)] = text;
      draw();
    }
    place.addEventListener("live-stored", () => { face.innerHTML = stored; say(status, first); });
  }

  async function copy(tell) {
    try {
      await navigator.clipboard.writeText(location.href);
      tell("The address of this state is on the clipboard.");
    } catch {
      tell(`The address of this state: ${location.href}`);
    }
  }

  // Questions -------------------------------------------------------------------------------------
  function question(place) {
    const form = place.querySelector(".live-answer");
    const told = form.querySelector(".live-verdict"), name = place.dataset.question;
    const seed = place.dataset.seed === undefined ? null : Number(place.dataset.seed);
    const tell = (html, bad) => { told.innerHTML = ""; const p = document.createElement("p"); p.setAttribute("role", "status"); p.textContent = html; p.classList.toggle("live-bad", bad); told.append(p); };
    form.addEventListener("submit", async event => {
      event.preventDefault();
      const field = form.querySelector("input[type=radio]:checked") || form.querySelector("input[type=text], textarea");
      if (!field?.value.trim()) return tell("Give an answer first.", true);
      if (!started) tell(LOADING, false);
      try { told.innerHTML = await ask("verdict", name, field.value, seed); } catch (error) { tell(error.message, true); }
    });
    form.querySelector("[data-do=fresh]")?.addEventListener("click", async () => {
      if (!started) tell(LOADING, false);
      try {
        const key = (form.querySelector("[id]") || form.querySelector("[name]"));
        const box = document.createElement("div");
        box.innerHTML = await ask("question", name, 1 + Math.floor(Math.random() * 9999), key.id || key.name);
        const fresh = box.firstElementChild;
        place.replaceWith(fresh);
        question(fresh);
        fresh.querySelector(".live-answer input, .live-answer textarea")?.focus();
      } catch (error) { tell(error.message, true); }
    });
    form.querySelector("fieldset").disabled = false;
  }

  // Cells -----------------------------------------------------------------------------------------
  const ran = new Set();
  let sources = null;
  async function cells() {
    const answer = await fetch(new URL(`../_sources/${script.dataset.page}.ipynb`, root));
    if (!answer.ok) throw new Error(`The notebook of this page could not be loaded (${answer.status}).`);
    return (await answer.json()).cells.map(c => c.cell_type === "code" ? [].concat(c.source).join("") : null);
  }

  function cell(place) {
    const index = Number(place.className.match(/live-cell-(\d+)/)[1]);
    const input = place.querySelector(".cell_input"), code = input?.querySelector("pre");
    if (!code) return;
    const bar = input.querySelector(".live-bar"), run = bar.querySelector("button");
    run.disabled = false;
    let box = null, output = null, halt = null;

    function open() {
      box = document.createElement("textarea");
      box.value = code.textContent.replace(/\n$/, "");
      box.rows = box.value.split("\n").length;
      box.spellcheck = false;
      box.setAttribute("aria-label", "Code of this cell");
      box.addEventListener("input", () => { box.rows = box.value.split("\n").length; });
      box.addEventListener("keydown", event => { if (event.key === "Enter" && (event.shiftKey || event.ctrlKey)) { event.preventDefault(); go(); } });
      const shown = code.closest(".highlight") || code;
      shown.hidden = true;
      shown.after(box);
      for (const button of all(".copybtn", input)) button.hidden = true;
      output = place.querySelector(".cell_output");
      if (!output) { output = document.createElement("div"); output.className = "cell_output docutils container"; place.append(output); }
      halt = document.createElement("button");
      halt.type = "button"; halt.textContent = "Stop"; halt.hidden = true;
      halt.addEventListener("click", () => { ran.clear(); stop("Stopped. The next run starts Python anew."); });
      bar.append(halt);
      run.textContent = "Run";
      run.title = "Shift+Enter";
      box.focus();
    }

    async function go() {
      if (!box) open();
      run.disabled = true; halt.hidden = false;
      output.setAttribute("aria-live", "polite");
      const wait = setTimeout(() => { output.innerHTML = `<p class="live-status">${started && !worker ? LOADING : "Running …"}</p>`; }, 300);
      try {
        sources ??= await cells();
        const before = sources.flatMap((s, i) => s !== null && i < index && !ran.has(i) ? [[i, s]] : []);
        const { html, good } = await ask("run", box.value, before.map(([, s]) => s));
        clearTimeout(wait);
        output.innerHTML = `<div class="output text_html live-output">${html || "<p class=\"live-status\">It ran and showed nothing.</p>"}</div>`;
        if (good) { for (const [i] of before) ran.add(i); ran.add(index); }
      } catch (error) {
        clearTimeout(wait);
        output.innerHTML = ""; const p = document.createElement("p"); p.className = "live-status live-bad"; p.textContent = error.message; output.append(p);
      }
      run.disabled = false; halt.hidden = true;
    }
    run.addEventListener("click", go);
  }

  function wake() {
    if (location.protocol === "file:") {
      for (const status of all(".live-explorer .live-status")) say(status, "This is the stored picture. Live Python needs the page to come over http: make serve.");
      return;
    }
    if (!window.Worker || !window.WebAssembly) {
      for (const status of all(".live-explorer .live-status")) say(status, "This is the stored picture: this browser has no WebAssembly workers to run Python in.");
      return;
    }
    all(".live-explorer").forEach(explorer);
    all(".question").filter(q => q.querySelector(".live-answer")).forEach(question);
    all('[class*="live-cell-"]').forEach(cell);
  }
  wake();
})();
