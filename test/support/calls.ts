import type { RoomDescription, SessionDescription } from '../../dataplane/descriptions.ts'

/** Body of an answer of control. Callers read ids and tokens. */
type ControlAnswer = Record<string, string>

/** Calls a control API, with additional `headers`. Rejects if the status is not 2xx. The error contains the answer. */
export async function callControl(
  url: string,
  method: 'GET' | 'POST' | 'PUT',
  path: string,
  body?: object,
  headers: Readonly<Record<string, string>> = {},
  send: typeof fetch = fetch,
): Promise<ControlAnswer> {
  const response = await send(`${url}${path}`, {
    method,
    headers: { ...(method === 'POST' && { 'content-type': 'application/json' }), ...headers },
    ...(body && { body: JSON.stringify(body) }),
    signal: AbortSignal.timeout(60_000),
  })
  const text = await response.text()
  if (!response.ok) throw new Error(`${method} ${path} answered ${response.status}: ${text}`)
  return JSON.parse(text)
}

/** Creates a project and a token for its players. */
export async function loginAt(
  url: string,
  claims: object = {},
  headers: Readonly<Record<string, string>> = {},
): Promise<{ projectId: string; token: string }> {
  const post = (path: string, body: object) => callControl(url, 'POST', path, body, headers)
  const { id: projectId = '' } = await post('/projects', { name: 'test' })
  const { token = '' } = await post('/tokens', { project_id: projectId, ...claims })
  return { projectId, token }
}

/** Returns the rooms, with their states, and the sessions of a node. Rejects if the node does not answer within `withinMs`. */
export async function runtimeOf(adminUrl: string, internalToken: string, withinMs = 60_000) {
  const response = await fetch(`${adminUrl}/admin/runtime?include_state=1`, {
    headers: { 'x-service-internal-token': internalToken },
    signal: AbortSignal.timeout(withinMs),
  })
  return (await response.json()) as { rooms: RoomDescription[]; sessions: SessionDescription[] }
}

/** Returns the sum of all series of a node's metric with the labels of `series`, such as `name{label="x"}`. 0 if there is none. */
export async function metricOf(adminUrl: string, series: string): Promise<number> {
  const text = await (await fetch(`${adminUrl}/metrics`)).text()
  const [name, labels = ''] = series.replace(/}$/, '').split('{')
  return text
    .split('\n')
    .filter((line) => /^\w+/.exec(line)?.[0] === name)
    .filter((line) => labels.split(',').every((label) => line.includes(label)))
    .reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' ') + 1)), 0)
}
