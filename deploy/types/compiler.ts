import { existsSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { pathToFileURL } from 'node:url'
import type { Project, Type } from 'typescript/unstable/sync'
import type { Described } from './shapes.ts'

/**
 * The types of states, from the TypeScript that the game has installed. Its interface is not stable: whatever fails here, the caller has other
 * sources.
 */

type Compiler = typeof import('typescript/unstable/sync')

/**
 * Returns the types of the states of room files, as JSON Schema. A file is missing in the result if TypeScript does not tell: the game has
 * TypeScript below 7, or the file is not in a project.
 */
export async function statesByCompiler(files: readonly string[]): Promise<ReadonlyMap<string, Described>> {
  const states = new Map<string, Described>()
  try {
    const path = createRequire(files[0] ?? import.meta.url).resolve('typescript/unstable/sync')
    const compiler: Compiler = await import(pathToFileURL(path).href)
    const projects = files.flatMap((file) => projectOf(dirname(file)) ?? [])
    const api = new compiler.API({ cwd: dirname(projects[0]!) })
    try {
      const snapshot = api.updateSnapshot({ openProjects: [...new Set(projects)] })
      for (const file of files) {
        const project = snapshot.getDefaultProjectForFile(file)
        const state = project && new TypeReader(compiler, project).stateOf(file)
        if (state) states.set(file, state)
      }
    } finally {
      api.close()
    }
  } catch {
    // States without a type are in no result.
  }
  return states
}

/** Returns the nearest `tsconfig.json` in `folder` or above. */
function projectOf(folder: string): string | undefined {
  const file = join(folder, 'tsconfig.json')
  if (existsSync(file)) return file
  return dirname(folder) === folder ? undefined : projectOf(dirname(folder))
}

/** Reads types of one project. */
class TypeReader {
  readonly #flags: Compiler['TypeFlags']
  readonly #optional: number
  readonly #project: Project
  /** Types that a `$ref` needs, by id: objects, and types that contain themselves. */
  readonly #defs: Record<string, Described> = {}
  /** Ids of the types that are being read. */
  readonly #reading = new Set<number>()
  /** Ids of types that contain themselves. */
  readonly #recursive = new Set<number>()

  constructor({ TypeFlags, SymbolFlags }: Compiler, project: Project) {
    this.#flags = TypeFlags
    this.#optional = SymbolFlags.Optional
    this.#project = project
  }

  /** Returns the type of the state of the room type that a file exports. */
  stateOf(file: string): Described | undefined {
    const { program, checker } = this.#project
    const source = program.getSourceFile(file)
    const exported = source && [...(checker.getSymbolAtLocation(source)?.getExports().values() ?? [])]
    const room = exported?.find(({ name }) => name === 'default')
    const types = this.#partOf(room && checker.getTypeOfSymbol(room), '~types')
    const state = this.#partOf(types && checker.getNonNullableType(types), 'state')
    return state && { ...this.#read(state), $defs: this.#defs }
  }

  #partOf(type: Type | undefined, name: string): Type | undefined {
    const { checker } = this.#project
    const part = type && checker.getPropertyOfType(type, name)
    return part && checker.getTypeOfSymbol(part)
  }

  #read(type: Type): Described {
    const flags = this.#flags
    const is = (some: number): boolean => (type.flags & some) !== 0
    if (type.isLiteralType()) return { const: type.value }
    if (is(flags.String)) return { type: 'string' }
    if (is(flags.Number)) return { type: 'number' }
    if (is(flags.Boolean)) return { type: 'boolean' }
    if (is(flags.Null)) return { type: 'null' }
    if (type.isUnionType()) return { anyOf: this.#readAll(type.getTypes()) }
    if (is(flags.Object | flags.Intersection)) return this.#readObject(type)
    return { $comment: `${this.#project.checker.typeToString(type)} in TypeScript` }
  }

  /** Without `undefined`: a key may be absent, a value of JSON may not. */
  #readAll(types: readonly Type[]): Described[] {
    return types.filter(({ flags }) => (flags & this.#flags.Undefined) === 0).map((type) => this.#read(type))
  }

  #readObject(type: Type): Described {
    const { id } = type
    const ref = { $ref: `#/$defs/${id}` }
    if (id in this.#defs) return ref
    if (this.#reading.has(id)) {
      this.#recursive.add(id)
      return ref
    }
    this.#reading.add(id)
    const described = this.#describe(type)
    this.#reading.delete(id)
    if (!described.properties && !this.#recursive.has(id)) return described
    this.#defs[id] = described
    return ref
  }

  #describe(type: Type): Described {
    const { checker } = this.#project
    if (type.isTypeReference() && (checker.isArrayType(type) || checker.isTupleType(type)))
      return { type: 'array', items: this.#readAll(checker.getTypeArguments(type)) }
    const parts = checker.getPropertiesOfType(type)
    const [index] = checker.getIndexInfosOfType(type)
    if (parts.length === 0 && index)
      return { type: 'object', additionalProperties: this.#read(index.valueType) }
    const read = parts.map((part) => [part.name, this.#read(checker.getTypeOfSymbol(part)!)] as const)
    const required = parts.filter(({ flags }) => (flags & this.#optional) === 0).map(({ name }) => name)
    return { type: 'object', properties: Object.fromEntries(read), required }
  }
}
