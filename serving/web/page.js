// Pastes, watches, copies. Whatever comes from the server is put into the page as text, never as markup.
"use strict";
const at = (id) => document.getElementById(id);
let job = null;

function headers(more) {
  const key = at("key").value.trim();
  return key ? { Authorization: `Bearer ${key}`, ...more } : { ...more };
}

function say(text, isError) {
  at("state").textContent = text;
  at("state").className = isError ? "error" : "";
}

async function call(path, options) {
  const answer = await fetch(path, options);
  if (!answer.ok) {
    const body = await answer.json().catch(() => ({}));
    const wait = answer.headers.get("Retry-After");
    throw new Error((body.error || `status ${answer.status}`) + (wait ? ` (in ${wait} s)` : ""));
  }
  return answer;
}

const times = (value) => (value == null ? "" : `${value.toFixed(2)}x`);

function addVerdict(event) {
  const row = at("verdicts").insertRow(0);
  const interval = event.speedup_low == null ? "" : `${times(event.speedup_low)} to ${times(event.speedup_high)}`;
  const who = event.confirms ? "confirmation" : event.source;
  const texts = [event.asked, event.status, times(event.speedup), interval, who, event.message];
  for (const text of texts) row.insertCell().textContent = text;
  row.cells[1].className = event.status;
  say(`${event.asked} candidates asked for`);
}

function finish(kind, event) {
  if (kind === "failed") return say(event.error, true);
  if (kind === "cancelled") return say("Cancelled.");
  const result = event.result;
  if (result.code == null) return say(`Done in ${result.seconds} s: ${result.message}`);
  at("found").hidden = false;
  at("kernel").textContent = result.code;
  at("summary").textContent =
    `${times(result.speedup)}, 99% interval ${times(result.speedup_low)} to ${times(result.speedup_high)} against ` +
    `${result.best_baseline}, confirmed on new process pairs; written by ${result.source}`;
  say(`Done in ${result.seconds} s.`);
}

function take(frame) {
  let kind = "", id = 0, data = "";
  for (const line of frame.split("\n")) {
    if (line.startsWith("event: ")) kind = line.slice(7);
    if (line.startsWith("id: ")) id = Number(line.slice(4));
    if (line.startsWith("data: ")) data += line.slice(6);
  }
  if (!data) return null;
  const event = JSON.parse(data);
  if (kind === "verdict") addVerdict(event);
  else if (kind === "queued") say(event.ahead ? `Waiting; ${event.ahead} jobs before this one.` : "Waiting.");
  else if (kind === "running") say("Searching.");
  else finish(kind, event);
  return { id, isLast: ["done", "failed", "cancelled"].includes(kind) };
}

// fetch, not EventSource, which cannot send a key. A stream that breaks is taken up after the last event.
async function watch(id) {
  let last = 0, failures = 0;
  while (failures < 20) {
    try {
      const answer = await call(`v1/jobs/${id}/events`, { headers: headers({ "Last-Event-ID": String(last) }) });
      failures = 0;
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        const frames = (rest + value).split("\n\n");
        rest = frames.pop();
        for (const frame of frames) {
          const seen = take(frame);
          if (seen === null) continue;
          last = seen.id;
          if (seen.isLast) return;
        }
      }
    } catch (error) {
      say(`The connection was lost (${error.message}); trying again.`, true);
    }
    failures += 1;
    await new Promise((done) => setTimeout(done, 1000));
  }
  say("The connection is lost; the job goes on.", true);
}

at("ask").addEventListener("submit", async (submitted) => {
  submitted.preventDefault();
  at("verdicts").replaceChildren();
  at("found").hidden = true;
  at("go").disabled = true;
  try {
    const body = JSON.stringify({
      task_source: at("source").value,
      max_candidates: Number(at("candidates").value),
      budget_seconds: Number(at("budget").value),
    });
    say("Sending.");
    const answer = await call("v1/optimize", { method: "POST", headers: headers({ "Content-Type": "application/json" }), body });
    job = (await answer.json()).id;
    at("live").hidden = false;
    at("stop").hidden = false;
    await watch(job);
  } catch (error) {
    say(error.message, true);
  }
  job = null;
  at("stop").hidden = true;
  at("go").disabled = false;
});

at("stop").addEventListener("click", async () => {
  if (!job) return;
  say("Cancelling: the search ends at its next verdict.");
  await call(`v1/jobs/${job}`, { method: "DELETE", headers: headers() }).catch((error) => say(error.message, true));
});

at("copy").addEventListener("click", async () => {
  const text = at("kernel").textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    getSelection().selectAllChildren(at("kernel")); // without https browsers keep the clipboard away
    document.execCommand("copy");
  }
  at("copy").textContent = "Copied";
  setTimeout(() => (at("copy").textContent = "Copy the kernel"), 1500);
});
