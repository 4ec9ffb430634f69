import { execFile } from 'node:child_process'
import { mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { ROOT } from './pages.ts'

const run = promisify(execFile)

/** What is not run but written down: programs that need an engine, a cluster, root, or a long time. */
const STOOD_IN_FOR = [
  ...['docker', 'helm', 'kubectl', 'sudo', 'systemctl', 'journalctl'],
  ...['npm', 'npx', 'roomful', 'curl', 'openssl', 'redis-cli', 'redis-server', 'jq'],
]

/** Writes its name and words down; `\x1f` between words, `\x1e` at the end. */
const STAND_IN = `#!/bin/sh
{ printf '%s' "\${0##*/}"; for word; do printf '\\037%s' "$word"; done; printf '\\036'; } >> "$SAID_TO"
`

/**
 * Has bash run a script in a folder with what is in `deploy/`, where programs that cannot be had here only write down what they are told.
 * Resolves with each command as its words, in order, whether or not what is between them finds what it needs; rejects when bash does not
 * understand the script.
 */
export async function rehearse(script: string): Promise<string[][]> {
  const folder = await mkdtemp(join(tmpdir(), 'roomful-rehearsal-'))
  try {
    const programs = join(folder, 'programs')
    await mkdir(programs)
    for (const name of STOOD_IN_FOR) await writeFile(join(programs, name), STAND_IN, { mode: 0o755 })
    await mkdir(join(folder, 'deploy'))
    for (const name of await readdir(join(ROOT, 'deploy')))
      await symlink(join(ROOT, 'deploy', name), join(folder, 'deploy', name))
    const saidTo = join(folder, 'said')
    await writeFile(saidTo, '')
    await run('bash', ['-n', '-c', script])
    // What waits for a server that is only stood in for does not end by itself.
    await run('timeout', ['--kill-after=1', '3', 'bash', '-c', script], {
      cwd: folder,
      env: { PATH: `${programs}:${process.env.PATH}`, HOME: folder, SAID_TO: saidTo },
    }).catch(() => undefined)
    const said = await readFile(saidTo, 'utf8')
    return said
      .split('\x1e')
      .slice(0, -1)
      .map((command) => command.split('\x1f'))
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}
