// Common script of the status pages of the server (status_page.html) and the picker.
const KEPT = 120;    // samples of history, one a second
const SPAN = 10;     // samples for the current rates
const state = { recent: [], rows: new Map(), selected: null, picked: false, tiles: new Map(), last: 0 };

// ---- formatting numbers ----------------------------------------------------------------------------
const digits = (n, most) => n.toLocaleString("en", { maximumFractionDigits: most });
const number = n => n >= 1e6 ? digits(n / 1e6, 2) + " M" : n >= 1e5 ? digits(n / 1e3, 0) + " k" : digits(n, n < 10 ? 1 : 0);
const rate = n => n === null ? "–" : n > 0 && n < 0.05 ? "<0.1" : number(n);
const time = us => us === null ? "–" : us < 1000 ? digits(us, us < 10 ? 1 : 0) + " µs"
  : us < 1e6 ? digits(us / 1e3, us < 1e4 ? 1 : 0) + " ms" : digits(us / 1e6, us < 1e7 ? 1 : 0) + " s";
// As in the log: 1 GiB is 1024 MiB.
const bytes = n => {
  for (const unit of ["B", "KiB", "MiB", "GiB"]) { if (n < 1024) return digits(n, unit === "B" ? 0 : 1) + " " + unit; n /= 1024; }
  return digits(n, 1) + " TiB";
};
const span = s => s < 60 ? Math.floor(s) + " s" : s < 3600 ? Math.floor(s / 60) + " min"
  : s < 86400 ? Math.floor(s / 3600) + " h " + Math.floor(s % 3600 / 60) + " min" : Math.floor(s / 86400) + " d " + Math.floor(s % 86400 / 3600) + " h";

// ---- the document ---------------------------------------------------------------------------------
const put = (element, text) => { if (element.textContent !== text) element.textContent = text; };

// A line over time that ends at the right edge; `top` is the value at the upper edge.
function trace(values, width, height, top) {
  const step = width / (KEPT - 1), from = KEPT - values.length;
  const at = values.map((value, i) => [(from + i) * step, height - 1 - Math.min(1, value / top) * (height - 3)]);
  return at.map(([x, y], i) => (i ? "L" : "M") + x.toFixed(1) + " " + y.toFixed(1)).join("");
}
function spark(svg, values, color) {
  const [w, h] = [100, 26], top = Math.max(...values, 1e-9), line = trace(values, w, h, top);
  svg.setAttribute("viewBox", `0 0 ${w} ${h}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  if (!svg.firstChild) svg.append(make("path", { fill: color, "fill-opacity": .14, stroke: "none" }),
    make("path", { fill: "none", stroke: color, "stroke-width": 1.5, "vector-effect": "non-scaling-stroke", "stroke-linejoin": "round" }));
  const flat = values.length < 2 || !values.some(value => value);
  svg.style.visibility = flat ? "hidden" : "visible";
  if (!flat) {
    const left = ((KEPT - values.length) * w / (KEPT - 1)).toFixed(1);
    svg.children[0].setAttribute("d", `${line}L${w} ${h}L${left} ${h}Z`);
    svg.children[1].setAttribute("d", line);
  }
}

// ---- differences ----------------------------------------------------------------------------------
const total = buckets => buckets.reduce((sum, n) => sum + n, 0);
// The values added to a histogram since `then` (undefined: all of them).
const added = (now, then) => then ? { sum: now.sum - then.sum, buckets: now.buckets.map((n, i) => n - (then.buckets[i] || 0)) } : now;
function quantile(buckets, q) {
  const rank = q * total(buckets);
  if (!rank) return null;
  for (let i = 0, below = 0; i < buckets.length; below += buckets[i++])
    if (buckets[i] && below + buckets[i] >= rank) {
      const low = i ? 2 ** (i - 1) : 0;
      return low + (2 ** i - low) * (rank - below) / buckets[i];
    }
  return null;
}

// ---- tiles ----------------------------------------------------------------------------------------
function tile(name, value, note, point, color = "var(--a)") {
  let it = state.tiles.get(name);
  if (!it) {
    it = { value: make("div", { class: "value" }), note: make("div", { class: "note" }), svg: make("svg"), points: [] };
    $("tiles").append(make("div", { class: "panel tile" }, make("div", { class: "label" }, name), it.value, it.note, it.svg));
    state.tiles.set(name, it);
  }
  put(it.value, value);
  put(it.note, note);
  it.points.push(point);
  it.points.splice(0, it.points.length - KEPT);
  spark(it.svg, it.points, color);
}

// ---- charts ---------------------------------------------------------------------------------------
const W = 370;
// Bars over a scale that doubles; a label is the upper bound of its bar.
function histogram(buckets, from, to, color, label, marks) {
  const n = to - from + 1, width = W / n, h = 56, most = Math.max(...buckets, 1), all = total(buckets) || 1;
  const svg = make("svg", { class: "chart", viewBox: `0 0 ${W} ${h + 14}` });
  svg.append(make("line", { x1: 0, x2: W, y1: h + .5, y2: h + .5, stroke: "var(--line)" }));
  for (let i = from; i <= to; i++) {
    const count = buckets[i] || 0, height = count ? Math.max(1.5, count / most * (h - 4)) : 0;
    const bar = make("rect", { x: ((i - from) * width + 1).toFixed(1), width: Math.max(1, width - 2).toFixed(1), y: (h - height).toFixed(1), height: height.toFixed(1), fill: color, rx: 1.5 });
    bar.append(make("title", {}, `${i ? "over " + label(i - 1) + ", " : ""}up to ${label(i)}: ${number(count)} (${digits(count / all * 100, 1)} %)`));
    svg.append(bar);
    if ((i - from) % marks === marks - 1) svg.append(make("text", { x: ((i - from + 1) * width).toFixed(1), y: h + 12, "text-anchor": i === to ? "end" : "middle" }, label(i)));
  }
  return svg;
}
function lines(series) {
  const h = 64, top = Math.max(...series.flatMap(one => one.values), 1);
  const svg = make("svg", { class: "chart", viewBox: `0 -12 ${W} ${h + 26}` });
  for (const y of [2.5, h / 2 + .5, h - .5]) svg.append(make("line", { x1: 0, x2: W, y1: y, y2: y, stroke: "var(--line)" }));
  for (const one of series) svg.append(make("path", { d: trace(one.values, W, h, top), fill: "none", stroke: one.color, "stroke-width": 1.6, "stroke-linejoin": "round" }));
  svg.append(make("text", { x: 0, y: -2 }, number(top)), make("text", { x: 0, y: h + 12 }, "2 min ago"),
    make("text", { x: W, y: h + 12, "text-anchor": "end" }, "now"));
  return svg;
}
function keys(...pairs) {
  return make("div", { class: "keys" }, ...pairs.map(([name, value, color]) => {
    const swatch = color ? [make("span", { class: "swatch", style: "background:" + color })] : [];
    return make("span", {}, ...swatch, name + " ", make("b", {}, value));
  }));
}

// ---- memory of clients -----------------------------------------------------------------------------
function drawMemory(now) {
  const memory = now.memory, used = memory.responses + memory.bodies + memory.requests + memory.pages + memory.open_calls + memory.connections + memory.cache, cells = texts => texts.map(text => make("td", {}, text));
  put($("memory-used"), bytes(used) + (memory.limit ? " of " + bytes(memory.limit) : "") + (memory.cache ? ", " + bytes(memory.cache) + " in the response cache" : ""));
  $("memory-meter").hidden = !memory.limit;
  $("memory-meter").firstChild.style.width = Math.min(100, used / memory.limit * 100).toFixed(0) + "%";
  $("memory-rows").replaceChildren(...memory.servers.map(one => make("tr", {},
    ...cells([one.name, bytes(one.responses), bytes(one.bodies), bytes(one.open_calls), bytes(one.connections)]), make("td", { class: one.waiting ? "wait" : "" }, number(one.waiting)))));
  $("holders").hidden = memory.holders.length === 0;
  $("holder-rows").replaceChildren(...memory.holders.map(one => make("tr", {},
    ...cells([one.peer, one.server, bytes(one.responses + one.pages), bytes(one.bodies), bytes(one.open_calls), bytes(one.connections)]),
    one.unread_ms === undefined ? make("td", { class: "dim" }, "–")
      : make("td", { class: one.unread_ms >= 1000 ? "bad" : "" }, one.unread_ms < 1000 ? "<1 s" : span(one.unread_ms / 1000)))));
}

// ---- errors ---------------------------------------------------------------------------------------
function drawErrors(now, short) {
  $("errors").hidden = now.errors.length === 0;
  const seconds = (now.now_ns - short.now_ns) / 1e9, name = one => one.protocol + " " + one.reason;
  const before = new Map(short.errors.map(one => [name(one), one.count]));
  $("error-rows").replaceChildren(...[...now.errors].sort((a, b) => b.count - a.count).slice(0, 20).map(one => {
    const each = seconds > 0 ? (one.count - (before.get(name(one)) || 0)) / seconds : 0;
    return make("tr", {}, make("td", {}, one.reason.toLowerCase().replaceAll("_", " ")), make("td", {}, one.protocol),
      make("td", {}, number(one.count)), make("td", { class: each > 0 ? "bad" : "dim" }, rate(each)));
  }));
}

// ---- update, once a second ---------------------------------------------------------------------
// `prepare` converts a response for `draw`, which reads the responses in state.recent.
function watch(prepare, draw) {
  async function ask() {
    try {
      const answer = await fetch("/status.json", { cache: "no-store", signal: AbortSignal.timeout(5000) });
      const now = await answer.json();
      prepare(now);
      now.n_errors = now.errors.reduce((sum, one) => sum + one.count, 0);
      now.fresh = true;
      if (state.recent.length && now.now_ns < state.recent.at(-1).now_ns) state.recent = [];   // another process
      state.recent.push(now);
      state.recent.splice(0, state.recent.length - SPAN - 1);
      state.last = performance.now();
      document.body.dataset.samples = Number(document.body.dataset.samples || 0) + 1;
      tellLive("live", true);
      draw();
    } catch (why) {
      tellLive(state.last ? `no answer for ${span((performance.now() - state.last) / 1000)}` : "no answer", false);
      if (!(why instanceof TypeError) && why.name !== "TimeoutError") { document.body.dataset.error = why; throw why; }
    } finally {
      setTimeout(ask, 1000);
    }
  }
  ask();
}
function tellLive(words, live) {
  put($("live"), words);
  $("live").className = "right " + (live ? "good" : "bad");
  document.body.classList.toggle("gone", !live);
}
function drawHead(now) {
  put($("version"), now.server.version);
  put($("ready"), now.server.ready ? "ready" : "not ready");
  $("ready").className = "pill " + (now.server.ready ? "good" : "wait");
  put($("uptime"), "up " + span(Date.now() / 1000 - now.server.started));
}
window.addEventListener("error", event => { document.body.dataset.error = event.message; });
