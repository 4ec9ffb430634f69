import { Converter } from 'typedoc'

/** What `defineRoom` returns is for the engine: its fields are no part of the reference, which has those of `RoomSpec`. */
const OPAQUE = 'RoomDefinition'

export function load(app) {
  app.converter.on(Converter.EVENT_RESOLVE_BEGIN, ({ project }) => {
    for (const reflection of Object.values(project.reflections))
      if (reflection.parent?.name === OPAQUE) project.removeReflection(reflection)
  })
}
