// Requests to the dashboard's server.

export async function request(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, { ...options, credentials: "same-origin" });
  } catch {
    throw new Error("The dashboard does not answer. Check that `penstock dashboard` still runs.");
  }
  const content = (answer.headers.get("content-type") ?? "").includes("json") ? await answer.json() : { says: await answer.text() };
  if (!answer.ok) throw new Error(content.says || `The dashboard answered ${answer.status}.`);
  return content;
}

export const pathOf = (processor, what) => `api/processors/${encodeURIComponent(processor)}/${what}`;
