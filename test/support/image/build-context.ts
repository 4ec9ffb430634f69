import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

interface Rule {
  readonly pattern: RegExp
  /** A line with `!`: what it matches is in the context after all. */
  readonly keep: boolean
}

/** Reads a `.dockerignore`: of the lines that match a path, or a folder it is in, the last decides. */
export function ignoredBy(text: string): (path: string) => boolean {
  const rules: Rule[] = text
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '' && !line.startsWith('#'))
    .map((line) => ({ keep: line.startsWith('!'), pattern: glob(line.replace(/^!/, '')) }))
  return (path) => {
    const parts = path.split('/')
    const paths = parts.map((_, at) => parts.slice(0, at + 1).join('/'))
    const last = rules.findLast(({ pattern }) => paths.some((one) => pattern.test(one)))
    return last !== undefined && !last.keep
  }
}

/** Patterns of Go's filepath.Match, and `**` for any number of folders. */
function glob(pattern: string): RegExp {
  const source = pattern
    .replace(/^\/|\/$/g, '')
    .replace(/[.+^${}()|\\]/g, '\\$&')
    .replaceAll('**/', '\0')
    .replaceAll('**', '\x01')
    .replaceAll('*', '[^/]*')
    .replaceAll('?', '[^/]')
    .replaceAll('\0', '(.*/)?')
    .replaceAll('\x01', '.*')
  return new RegExp(`^${source}$`)
}

/** The files under `root` that a build would be sent: those that are not ignored, neither by git nor by `.dockerignore`. */
export function contextFiles(root: string): string[] {
  const ignored = ignoredBy(readFileSync(join(root, '.dockerignore'), 'utf8'))
  const list = ['ls-files', '-z', '--cached', '--others', '--exclude-standard', '--deduplicate']
  const known = execFileSync('git', list, { cwd: root, encoding: 'utf8', maxBuffer: 1 << 26 })
  return known.split('\0').filter((path) => path !== '' && !ignored(path) && existsSync(join(root, path)))
}
