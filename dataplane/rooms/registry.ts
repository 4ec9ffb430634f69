import { isRoomDefinition, type RoomDefinition } from './definition.ts'
import { RoomDefinitionError } from './definition-check.ts'

/** The room types a node has installed, by name. */
export class RoomTypes {
  readonly #definitions = new Map<string, RoomDefinition>()

  /** Throws RoomDefinitionError for two of a name, and for what `defineRoom` did not make. */
  constructor(definitions: readonly RoomDefinition[]) {
    for (const definition of definitions) {
      if (!isRoomDefinition(definition))
        throw new RoomDefinitionError(
          'a room type is not what defineRoom returns: pass it through defineRoom',
        )
      if (this.#definitions.has(definition.type))
        throw new RoomDefinitionError(
          `two room types are called ${JSON.stringify(definition.type)}: rename one`,
        )
      this.#definitions.set(definition.type, definition)
    }
  }

  get(type: string): RoomDefinition | undefined {
    return this.#definitions.get(type)
  }

  /** Puts a definition in the place of the one of its name, or adds it. */
  set(definition: RoomDefinition): void {
    this.#definitions.set(definition.type, definition)
  }
}
