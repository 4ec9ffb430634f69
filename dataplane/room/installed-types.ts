import { nearestOf } from '../../shared/config.ts'
import { type Nowhere, nowhere } from '../place.ts'
import { checkMatches, isRoomDefinition, type RoomDefinition } from './definition.ts'
import { RoomDefinitionError } from './definition-check.ts'
import { roomsHash } from './loader.ts'

/** The room types of a node. */
export class InstalledTypes {
  readonly #types = new Map<string, RoomDefinition>()
  // Kept until a definition is replaced, because each placement of a room reads them.
  #hash: string | undefined
  #versions: Readonly<Record<string, number>> | undefined

  /** Throws RoomDefinitionError for a duplicate name, and for a value that `defineRoom` did not create. */
  constructor(definitions: readonly RoomDefinition[]) {
    for (const definition of definitions) {
      if (!isRoomDefinition(definition))
        throw new RoomDefinitionError(
          'a room type is not what defineRoom returns: pass it through defineRoom',
        )
      if (this.#types.has(definition.type))
        throw new RoomDefinitionError(
          `two room types are called ${JSON.stringify(definition.type)}: rename one`,
        )
      this.#types.set(definition.type, definition)
    }
    for (const { type, matches } of this.all) if (matches) checkMatches(type, matches, this.#types)
  }

  get all(): readonly RoomDefinition[] {
    return [...this.#types.values()]
  }

  get(roomType: string): RoomDefinition | undefined {
    return this.#types.get(roomType)
  }

  /** Returns a room type, or the answer to messages of a type that is not installed. */
  find(roomType: string): RoomDefinition | Nowhere {
    const definition = this.#types.get(roomType)
    if (definition) return definition
    const nearest = nearestOf(roomType, [...this.#types.keys()])
    const meant = nearest === undefined ? '' : `; did you mean ${JSON.stringify(nearest)}?`
    return nowhere('unknown_type', `no room type ${JSON.stringify(roomType)} is installed${meant}`)
  }

  /** Hash of the code of all room types (`roomsHash`). */
  get hash(): string {
    this.#hash ??= roomsHash(this.all)
    return this.#hash
  }

  /** Version of each room type. A room whose state has a newer version cannot run here. */
  get versions(): Readonly<Record<string, number>> {
    this.#versions ??= Object.fromEntries(this.all.map(({ type, version }) => [type, version]))
    return this.#versions
  }

  /** Replaces the definition of the same name. */
  replace(definition: RoomDefinition): void {
    this.#types.set(definition.type, definition)
    this.#hash = undefined
    this.#versions = undefined
  }
}
