import { randomUUID } from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'
import module, { createRequire } from 'node:module'
import { dirname, join, sep } from 'node:path'
import { pathToFileURL } from 'node:url'

/**
 * Imports a module that is TypeScript, or imports some, without the cache of an earlier import. The package tsx is loaded only for this. The
 * stacks of the module's errors name its files and lines. Rejects with what the module throws, and if tsx is not installed.
 */
export async function importTypeScript(file: string): Promise<unknown> {
  const tsx = await loadTsx()
  const folder = dirname(file)
  forgetCommonJs(folder)
  const namespace = randomUUID()
  const tsconfig = nearest(folder, 'tsconfig.json')
  // Without this option, tsx takes the tsconfig.json of the working directory.
  const esm = tsx.esm.register({ namespace, ...(tsconfig !== undefined && { tsconfig }) })
  const cjs = tsx.cjs.register({ namespace })
  // On Node 20 an import of CommonJS becomes a `data:` URL: a stack then has the whole source instead of file and line.
  if (isCommonJs(file)) return { default: cjs.require(file, import.meta.url) }
  return esm.import(pathToFileURL(file).href, import.meta.url)
}

/**
 * Ends the process in which the compiler of tsx runs; the next import starts another. Where Node has no synchronous hooks (20, and 22 before
 * 22.15), tsx compiles in the thread of the hooks, and its compiler stays. To be called when nothing is being imported.
 */
export function endCompiler(): void {
  if ('registerHooks' in module) return
  const compiler = createRequire(import.meta.resolve('tsx/esm/api')).resolve('esbuild')
  module.register(END_IN_HOOKS, { parentURL: import.meta.url, data: pathToFileURL(compiler).href })
}

const END_IN_HOOKS =
  'data:text/javascript,export const initialize = async (compiler) => (await import(compiler)).stop()'

/** Loads tsx. In this thread its compiler is to run only while it compiles. Otherwise esbuild keeps a thread with a process. */
async function loadTsx() {
  const { ESBUILD_WORKER_THREADS: before } = process.env
  process.env.ESBUILD_WORKER_THREADS = '0'
  try {
    const [esm, cjs] = await Promise.all([import('tsx/esm/api'), import('tsx/cjs/api')])
    return { esm, cjs }
  } catch (cause) {
    throw new Error('it is TypeScript, or imports some: npm install tsx, or build it to JavaScript', {
      cause,
    })
  } finally {
    if (before === undefined) delete process.env.ESBUILD_WORKER_THREADS
    else process.env.ESBUILD_WORKER_THREADS = before
  }
}

/** Returns true if Node takes a file as CommonJS, by its name and its package. */
function isCommonJs(file: string): boolean {
  if (file.endsWith('.mjs')) return false
  const description = nearest(dirname(file), 'package.json')
  if (description === undefined) return true
  const { type } = JSON.parse(readFileSync(description, 'utf8')) as { type?: unknown }
  return type !== 'module'
}

/** ES modules are imported again each time. A CommonJS module would be remembered. */
function forgetCommonJs(folder: string): void {
  const { cache } = createRequire(import.meta.url)
  for (const path of Object.keys(cache))
    if (path.startsWith(folder + sep) && !path.includes(`${sep}node_modules${sep}`)) delete cache[path]
}

/** Returns the path of the nearest file of this name, in `folder` or above. */
function nearest(folder: string, name: string): string | undefined {
  const file = join(folder, name)
  if (existsSync(file)) return file
  const above = dirname(folder)
  return above === folder ? undefined : nearest(above, name)
}
