import { readFileSync } from 'node:fs'
import { parse } from 'yaml'

/** A service of `docker compose config`, with the fields that tests read. */
export interface ComposeService {
  readonly image: string
  readonly build?: { readonly context: string; readonly dockerfile: string }
  readonly user?: string
  readonly command?: readonly string[]
  readonly entrypoint?: readonly string[]
  readonly environment?: Readonly<Record<string, string | number>>
  readonly volumes?: readonly string[]
  readonly tmpfs?: readonly string[]
  readonly ports?: readonly string[]
  readonly networks?: readonly string[]
  readonly network_mode?: string
  readonly depends_on?: Readonly<Record<string, { readonly condition: string }>>
  readonly healthcheck?: { readonly test?: readonly string[]; readonly disable?: boolean }
  readonly read_only?: boolean
  readonly cap_drop?: readonly string[]
  readonly cap_add?: readonly string[]
  readonly security_opt?: readonly string[]
  readonly restart?: string
  readonly pids_limit?: number
  readonly stop_grace_period?: string
  readonly deploy?: {
    readonly resources: { readonly limits: { readonly cpus: string; readonly memory: string } }
  }
}

interface NetworkOfCompose {
  readonly internal?: boolean
  readonly driver_opts?: Readonly<Record<string, string>>
}

interface ComposeFile {
  readonly services: Readonly<Record<string, ComposeService>>
  readonly networks: Readonly<Record<string, NetworkOfCompose>>
  readonly volumes: Readonly<Record<string, unknown>>
}

const VARIABLE = /\$\$|\$\{([A-Z_0-9]+)(?::-([^}]*))?\}/g

/** Returns the variables of a compose file with their defaults. Throws if a variable has two defaults. */
export function composeVariables(text: string): Map<string, string> {
  const found = new Map<string, string>()
  for (const [, name, standard = ''] of text.matchAll(VARIABLE)) {
    if (name === undefined) continue
    const before = found.get(name)
    if (before !== undefined && before !== standard)
      throw new Error(`${name} has two defaults: "${before}" and "${standard}"`)
    found.set(name, standard)
  }
  return found
}

/** Reads a compose file like Compose: replaces variables, resolves anchors and merges, and replaces `$$` by `$`. */
export function readCompose(path: string | URL, env: Readonly<Record<string, string>> = {}): ComposeFile {
  const put = (text: string): string =>
    text.replace(VARIABLE, (whole, name: string | undefined, standard = '') =>
      whole === '$$' ? '$' : env[name!] || standard,
    )
  const deep = (value: unknown): unknown => {
    if (typeof value === 'string') return put(value)
    if (Array.isArray(value)) return value.map(deep)
    if (value === null || typeof value !== 'object') return value
    return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, deep(one)]))
  }
  return deep(parse(readFileSync(path, 'utf8'), { merge: true })) as ComposeFile
}
