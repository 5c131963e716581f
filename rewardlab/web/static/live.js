// The live page of a run: asks for its state a few times a second and draws it; sends what people press and hold.

import { SMOOTHED, color, plot, smooth } from "./plot.js";

const STATE_EVERY = 200, FRAME_EVERY = 100, LOST_EVERY = 1000, MOTION_EVERY = 100; // milliseconds
const ANSWER_WITHIN = 3000;
const GAP = 0.5; // seconds without a probability after which the curve begins anew: the robot moves to its start

const AXES = ["x", "y", "z", "roll", "pitch", "yaw", "gripper"];
// Of each axis: the keys and the signs on the buttons for its positive and its negative direction.
const MOTION_KEYS = {
  x: [["w", "ArrowUp"], ["s", "ArrowDown"], "forward", "back"], y: [["a", "ArrowLeft"], ["d", "ArrowRight"], "left", "right"],
  z: [["e", "PageUp"], ["q", "PageDown"], "up", "down"], roll: [["u"], ["o"], "roll +", "roll −"],
  pitch: [["i"], ["k"], "pitch +", "pitch −"], yaw: [["j"], ["l"], "yaw +", "yaw −"],
  gripper: [["+", "="], ["-"], "open", "close"],
};
const LABEL_KEYS = { 1: "success", 0: "failure", r: "redo", c: "resume" };
const percent = (value) => `${(100 * value).toFixed(value < 0.1 && value > 0 ? 1 : 0)} %`;
const whole = (value) => Math.round(value).toLocaleString("en");
const short = (value) => (Math.abs(value) >= 1000 ? whole(value) : String(+value.toPrecision(3)));
const CURVES = [
  { title: "Success", names: { "env/success_at_end": "training", "eval/success_at_end": "evaluation" }, share: true },
  { title: "Return of an episode", names: { "env/return": "training", "eval/return": "evaluation" } },
  { title: "Reward of the models, mean of a step", names: { "rollout/model_rewards": "" } },
  { title: "False-positive rate of the classifier", names: { "audit/fpr": "" }, share: true },
  { title: "Length of an episode", names: { "env/episode_length": "" } },
  { title: "Updates per second", names: { "async/updates_per_second": "" } },
];
// [title, where, name, words]; what a run does not have is left out.
const NUMBERS = [
  ["Iteration", "values", "iteration", whole], ["Environment steps", "metrics", "env_steps", whole],
  ["Control rate", "env", "hz", (hz) => `${hz.toFixed(1)} Hz`],
  ["Control period, p99", "env", "p99", (seconds) => `${(1000 * seconds).toFixed(1)} ms`],
  ["Safety stops", "env", "stops", whole], ["Clipped commands", "env", "clipped", whole],
  ["Steps moved by a person", "env", "interventions", whole],
  ["Transitions in the replay buffer", "metrics", "async/replay_size", whole],
  ["Demonstrations", "metrics", "async/demonstrations", whole],
  ["Updates", "metrics", "train/updates", whole],
  ["Updates per second", "metrics", "async/updates_per_second", (rate) => rate.toFixed(1)],
  ["Age of the policy that acts", "metrics", "async/staleness_seconds", (seconds) => `${seconds.toFixed(1)} s`],
  ["Updates since it was made", "metrics", "async/staleness_updates", whole],
];
const SHOWN_ELSEWHERE = new Set(["hold", "hold_needed", "claims", "threshold", "phase", "axes", "p50"]);

const $ = (id) => document.getElementById(id);
let state = null, chosen = 0, lost = false, problems = [], curveNumber = -1, curves = {};

// ---- asking ----

async function ask(path, options = {}) {
  const answer = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(ANSWER_WITHIN), ...options });
  if (!answer.ok) throw new Error(await answer.text());
  return answer;
}

async function send(path, body) {
  const answer = await ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
  return answer.json();
}

async function follow() {
  for (;;) {
    try {
      const newest = await (await ask("state")).json();
      if (state !== null && newest.run !== state.run) { chosen = 0; problems = []; curveNumber = -1; }
      state = newest;
      lost = false;
      if (state.curve_number !== curveNumber) {
        const names = CURVES.flatMap((curve) => Object.keys(curve.names)).map((name) => `name=${encodeURIComponent(name)}`);
        curves = await (await ask(`curves?${names.join("&")}`)).json();
        curveNumber = state.curve_number;
      }
    } catch {
      lost = true;
    }
    draw();
    await new Promise((go) => setTimeout(go, lost ? LOST_EVERY : document.hidden ? 5 * STATE_EVERY : STATE_EVERY));
  }
}

// ---- drawing ----

function draw() {
  const env = state?.envs[chosen];
  const controls = env?.controls ?? false;
  $("status").className = `status ${state?.ended ? "" : lost ? "lost" : "running"}`;
  $("status").textContent = words();
  drawBanners();
  if (!state) return;
  document.title = $("title").textContent = state.title;
  drawChoice();
  $("stop").hidden = $("people").hidden = !controls;
  if (controls) drawPeople(env);
  drawCameras();
  drawProbability(env);
  drawHold(env);
  drawOutcomes();
  drawNumbers(env);
  drawMessages();
  drawCurves();
  $("nothing").hidden = state.ended !== null || !$("cameras").hidden || !$("curves").hidden || !$("probability").hidden;
}

function clock(seconds) {
  const whole = Math.floor(seconds), two = (number) => String(number).padStart(2, "0");
  const rest = `${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}`;
  return whole < 3600 ? rest : `${Math.floor(whole / 3600)}:${rest}`;
}

function words() {
  if (state?.ended) return `ended after ${clock(state.ended.seconds)}`;
  if (lost) return "connection lost";
  return `running, ${clock(state.seconds)}`;
}

function drawBanners() {
  const shown = problems.map((text) => ["alarm", text]);
  const controlled = state?.envs.some((env) => env.controls);
  if (state?.ended) shown.push([state.ended.alarm ? "alarm" : "plain", `${state.ended.text} This page goes on when it is started again.`]);
  else if (lost) {
    const warning = controlled ? " STOP does not reach the robot from here: use its emergency stop." : "";
    shown.push([controlled ? "alarm" : "plain", `Connection lost. The page tries again by itself.${warning}`]);
  } else if (state?.envs.some((env) => env.stopped)) shown.push(["", "Stopped. Press Resume (c) to go on; the episode is begun again."]);
  fill($("banners"), shown.map(([kind, text]) => make("div", { className: `banner ${kind}`, textContent: text })));
}

function drawChoice() {
  const names = state.envs.map((env) => env.name);
  $("choice").hidden = names.length < 2;
  if ($("env").options.length !== names.length || names.some((name, i) => $("env").options[i].text !== name))
    fill($("env"), names.map((name, i) => new Option(name, i)), true);
  if (chosen >= names.length) chosen = 0;
  $("env").value = chosen;
}

function drawPeople(env) {
  $("phase").textContent = env.stopped ? "stopped" : (env.values.phase ?? "");
  const axes = String(env.values.axes ?? "").split(" ").filter((axis) => axis in MOTION_KEYS);
  if ($("motions").dataset.axes !== axes.join(" ")) {
    $("motions").dataset.axes = axes.join(" ");
    const buttons = axes.flatMap((axis) => [0, 1].map((way) => motionButton(axis, way)));
    fill($("motions"), buttons, true);
  }
  $("resume").classList.toggle("wanted", env.stopped);
  for (const button of document.querySelectorAll("[data-press]")) button.disabled = lost || state.ended !== null || (env.stopped && button.id !== "resume");
}

function drawCameras() {
  const several = state.envs.length > 1;
  const wanted = state.envs.flatMap((env, number) => env.cameras.map((camera) => ({ env: number, camera, name: several ? `${env.name}: ${camera}` : camera })));
  $("cameras").hidden = wanted.length === 0;
  const key = JSON.stringify([state.run, wanted]);
  if ($("cameras").dataset.key === key) return;
  $("cameras").dataset.key = key;
  fill($("cameras"), wanted.map(({ env, camera, name }) => {
    const picture = make("img", { alt: name });
    Object.assign(picture.dataset, { env, camera, number: "" });
    watch(picture);
    const figure = make("figure");
    figure.append(picture, make("figcaption", { textContent: name }));
    return figure;
  }), true);
}

// Fetches the pictures of a camera as long as it is shown; the next one only when the last has arrived.
async function watch(picture) {
  await new Promise((go) => setTimeout(go));
  const { env, camera } = picture.dataset;
  while (picture.isConnected) {
    try {
      if (!document.hidden && !lost && !state.ended) {
        const query = new URLSearchParams({ env, camera, after: picture.dataset.number });
        const answer = await ask(`frame?${query}`);
        if (answer.status === 200) {
          const old = picture.src;
          picture.src = URL.createObjectURL(await answer.blob());
          picture.dataset.number = answer.headers.get("X-Frame-Number");
          if (old) URL.revokeObjectURL(old);
        }
      }
    } catch { /* the state says that the connection is lost */ }
    await new Promise((go) => setTimeout(go, FRAME_EVERY));
  }
}

function drawProbability(env) {
  const points = env?.probabilities ?? [], threshold = env?.values.threshold;
  $("probability").hidden = points.length === 0;
  if (points.length === 0) return;
  const last = points.at(-1)[1];
  $("now").textContent = `${last.toFixed(3)}${threshold === undefined ? "" : `, threshold ${threshold.toFixed(3)}`}`;
  const until = points.at(-1)[0], since = Math.max(points[0][0], until - 60);
  const lines = [{ points: points.filter(([time]) => time >= since), color: color("accent"), fill: true }];
  plot($("chart"), lines, { low: 0, high: 1, threshold, gap: GAP, words: percent, left: `${short(until - since)} s ago`, right: "now" });
}

function drawHold(env) {
  const values = env?.values ?? {}, byModel = values.claims !== undefined;
  const count = byModel ? values.claims : values.hold, needed = values.hold_needed;
  $("hold").hidden = needed === undefined || count === undefined;
  if ($("hold").hidden) return;
  $("hold-title").textContent = byModel ? "Claims of the model in a row" : "Steps at the target in a row";
  $("hold-count").textContent = `${count} of ${needed}`;
  const pips = needed <= 40 ? Array.from({ length: needed }, (_, i) => make("i", { className: i < count ? "on" : "" })) : [];
  fill($("pips"), pips);
}

function drawOutcomes() {
  const names = Object.keys(state.outcomes).sort((a, b) => order(a) - order(b));
  $("outcomes").hidden = names.length === 0;
  fill($("counts"), names.map((name) => {
    const box = make("div", { className: name });
    box.dataset.outcome = name;
    box.append(make("b", { textContent: whole(state.outcomes[name]) }), name);
    return box;
  }));
  fill($("last"), state.last_outcomes.map((name) => make("i", { className: name, title: name })));
}

const order = (name) => ["success", "failure", "redo", "discarded"].indexOf(name) >>> 0;

function drawNumbers(env) {
  const places = { env: env?.values ?? {}, values: state.values, metrics: state.metrics };
  const rows = NUMBERS.filter(([, place, name]) => places[place][name] != null)
    .map(([title, place, name, words]) => [title, words(places[place][name])]);
  const known = new Set([...NUMBERS.map(([, , name]) => name), ...SHOWN_ELSEWHERE]);
  for (const [name, value] of [...Object.entries(state.values), ...Object.entries(places.env)])
    if (!known.has(name) && value !== null)
      rows.push([name.replaceAll("_", " ").replace(/^./, (first) => first.toUpperCase()), typeof value === "number" ? short(value) : value]);
  $("numbers").hidden = rows.length === 0;
  fill($("rows"), rows.flatMap(([title, words]) => [make("dt", { textContent: title }), make("dd", { textContent: words })]));
}

function drawMessages() {
  $("said").hidden = state.messages.length === 0;
  fill($("messages"), state.messages.toReversed().map(({ seconds, text, alarm }) => {
    const line = make("li", { className: alarm ? "alarm" : "" });
    line.append(make("time", { textContent: clock(seconds) }), text);
    return line;
  }));
}

function drawCurves() {
  const shown = CURVES.filter(({ names }) => Object.keys(names).some((name) => curves[name]?.length > 0));
  $("curves").hidden = shown.length === 0;
  if ($("curves").dataset.shown !== shown.map(({ title }) => title).join()) {
    $("curves").dataset.shown = shown.map(({ title }) => title).join();
    fill($("curves"), shown.map(({ title }) => {
      const box = make("div", { className: "curve" }), row = make("div", { className: "row" });
      row.append(make("h2", { textContent: title }), make("p", { className: "figure" }));
      box.append(row, make("canvas", { height: 120 }), make("p", { className: "keys" }));
      return box;
    }), true);
  }
  shown.forEach(({ names, share }, i) => {
    const box = $("curves").children[i], present = Object.keys(names).filter((name) => curves[name]?.length > 0);
    const lines = present.flatMap((name, j) => {
      const line = { points: curves[name], color: color(j ? "bad" : "accent") };
      return line.points.length < 2 * SMOOTHED ? [line] : [{ ...line, faint: true }, { ...line, points: smooth(line.points) }];
    });
    const last = smooth(curves[present[0]]).at(-1)[1];
    box.querySelector(".figure").textContent = share ? percent(last) : short(last);
    const ends = lines.flatMap(({ points }) => [points[0][0], points.at(-1)[0]]);
    const limits = share ? { low: 0, high: 1 } : {};
    plot(box.querySelector("canvas"), lines, {
      ...limits, words: share ? percent : short, left: whole(Math.min(...ends)), right: `${whole(Math.max(...ends))} steps`,
    });
    const titles = present.length > 1 ? present.map((name, j) => {
      const key = make("i", { textContent: `— ${names[name]}` });
      key.style.color = color(j ? "bad" : "accent");
      return key;
    }) : [];
    fill(box.querySelector(".keys"), titles);
  });
}

function make(tag, properties = {}) {
  return Object.assign(document.createElement(tag), properties);
}

// Replaces the children of an element where they differ, so that what is selected or held stays; `always`: even then.
function fill(parent, children, always = false) {
  const same = !always && parent.children.length === children.length && children.every((child, i) => child.isEqualNode(parent.children[i]));
  if (!same) parent.replaceChildren(...children);
}

// ---- people ----

async function stop() {
  held.clear();
  try {
    problems = (await send("stop", {})).problems.map((text) => `STOP FAILED: ${text}. Use the emergency stop of the robot.`);
  } catch (error) {
    problems = [`STOP did not reach the run (${error.message}). Use the emergency stop of the robot.`];
  }
  drawBanners();
}

async function press(event) {
  const button = document.querySelector(`[data-press="${event}"]`);
  if (button.disabled) return;
  button.classList.add("sent");
  setTimeout(() => button.classList.remove("sent"), 250);
  if (event === "resume") problems = [];
  try {
    await send("press", { env: chosen, event });
  } catch (error) {
    problems = [`${event} did not reach the run (${error.message})`];
  }
  drawBanners();
}

const held = new Map(); // what is held, a key or a button: [axis, direction]
let moving = false, onItsWay = false;

async function move() {
  const motion = AXES.map(() => 0);
  for (const [axis, direction] of held.values()) motion[AXES.indexOf(axis)] = direction;
  const moves = motion.some((share) => share !== 0);
  for (const button of $("motions").children) button.classList.toggle("held", motion[AXES.indexOf(button.dataset.axis)] === +button.dataset.direction);
  if ((!moves && !moving) || (moves && onItsWay)) return;
  moving = moves;
  onItsWay = true;
  try {
    await send("motion", { env: chosen, motion });
  } catch { /* without requests the robot stands still in 0.3 s */ }
  onItsWay = false;
}

function hold(source, axis, direction) {
  if (held.has(source) || lost) return;
  held.set(source, [axis, direction]);
  move();
}

function release(source) {
  if (held.delete(source)) move();
}

function motionButton(axis, way) {
  const [keys, title] = [MOTION_KEYS[axis][way], MOTION_KEYS[axis][2 + way]], direction = way ? -1 : 1;
  const button = make("button", { textContent: title, ariaLabel: title });
  Object.assign(button.dataset, { axis, direction });
  button.append(make("kbd", { textContent: keys[0] }));
  button.addEventListener("pointerdown", (event) => {
    button.setPointerCapture(event.pointerId);
    hold(button, axis, direction);
  });
  for (const end of ["pointerup", "pointercancel", "lostpointercapture"]) button.addEventListener(end, () => release(button));
  button.addEventListener("contextmenu", (event) => event.preventDefault());
  return button;
}

const KEYS = new Map(AXES.flatMap((axis) => [0, 1].flatMap((way) => MOTION_KEYS[axis][way].map((key) => [key, [axis, way ? -1 : 1]]))));
const keyOf = (event) => (event.key.length === 1 ? event.key.toLowerCase() : event.key);

document.addEventListener("keydown", (event) => {
  if ($("people").hidden || event.ctrlKey || event.altKey || event.metaKey) return;
  const key = keyOf(event), axes = $("motions").dataset.axes?.split(" ") ?? [];
  if (key === " ") event.repeat || stop();
  else if (key in LABEL_KEYS) event.repeat || press(LABEL_KEYS[key]);
  else if (KEYS.has(key) && axes.includes(KEYS.get(key)[0])) hold(key, ...KEYS.get(key));
  else return;
  event.preventDefault();
});
document.addEventListener("keyup", (event) => {
  if (event.key === " " && !$("people").hidden) event.preventDefault(); // it must not click the button in focus
  release(keyOf(event));
});
window.addEventListener("blur", () => { held.clear(); move(); });
document.addEventListener("visibilitychange", () => { held.clear(); move(); });
$("stop").addEventListener("pointerdown", stop);
$("stop").addEventListener("click", (event) => event.detail === 0 && stop()); // with the keyboard or a screen reader
$("env").addEventListener("change", (event) => { chosen = +event.target.value; held.clear(); draw(); });
for (const button of document.querySelectorAll("[data-press]")) button.addEventListener("click", () => { press(button.dataset.press); button.blur(); });
setInterval(() => held.size && move(), MOTION_EVERY);
follow();
