// Requests to the dashboard's server.

export async function request(path, options = {}) {
  let response;
  try {
    response = await fetch(path, { ...options, credentials: "same-origin" });
  } catch {
    throw new Error("The dashboard does not answer. Check that `penstock dashboard` still runs.");
  }
  const isJson = (response.headers.get("content-type") ?? "").includes("json");
  const content = isJson ? await response.json() : { message: await response.text() };
  if (!response.ok) throw new Error(content.message || `The dashboard answered ${response.status}.`);
  return content;
}

export const pathOf = (processor, resource) => `api/processors/${encodeURIComponent(processor)}/${resource}`;
