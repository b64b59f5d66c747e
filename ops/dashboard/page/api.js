// Requests to the page's server.

const DASHBOARD = { name: "dashboard", command: "penstock dashboard" };

export async function request(path, options = {}, server = DASHBOARD) {
  let response;
  try {
    response = await fetch(path, { ...options, credentials: "same-origin" });
  } catch {
    throw new Error(`The ${server.name} does not answer. Check that \`${server.command}\` still runs.`);
  }
  const isJson = (response.headers.get("content-type") ?? "").includes("json");
  const content = isJson ? await response.json() : { message: await response.text() };
  if (!response.ok) throw new Error(content.message || `The ${server.name} answered ${response.status}.`);
  return content;
}

export const pathOf = (processor, resource) => `api/processors/${encodeURIComponent(processor)}/${resource}`;
