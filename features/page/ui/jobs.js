// The progress of a job that indexes uploaded files.

import { later, send } from "./api.js";
import { count, fill, h } from "./dom.js";
import { problem } from "./empty.js";

const ENDS = { succeeded: "Done", failed: "The job failed", cancelled: "The job was cancelled" };

/** Show a job until it ends; return it then. */
export async function follow(report, job, signal) {
  const bar = h("progress", { "aria-label": "Files" });
  const said = h("p");
  const refused = h("div");
  const away = h("p.problem");
  const tell = (wrong) => fill(away, wrong);
  const stop = h("button", {
    type: "button",
    onclick: () => send("DELETE", `jobs/${job.id}`).catch((error) => fill(refused, problem(error))),
  }, "Cancel");
  fill(report, said, bar, away, stop, refused);
  for (;;) {
    const { total } = job.files;
    const done = job.files.done + job.files.failed;
    bar.max = Math.max(total, 1);
    bar.value = done;
    fill(said, `${ENDS[job.state] ?? (job.state === "queued" ? "Waiting" : "Reading")}: ${done} of ${count(total, "file")}, ` +
      `${count(job.documents.written, "document")} written, ${job.documents.unchanged} unchanged`);
    fill(refused, job.error && h("p.problem", { role: "alert" }, job.error), refusals(job));
    if (job.state in ENDS) {
      bar.remove();
      stop.remove();
      return job;
    }
    job = await later(`jobs/${job.id}`, tell, signal);
  }
}

function refusals(job) {
  if (!job.refusals) return null;
  return h("details", { open: true }, h("summary", {}, `${count(job.refusals, "refusal")}`),
    h("dl.refused", {}, job.refused.map((one) => [h("dt", {}, one.id), h("dd", {}, one.reason)])));
}
