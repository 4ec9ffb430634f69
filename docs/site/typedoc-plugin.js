import { Converter } from 'typedoc'

/** The result of `defineRoom` is for the engine. The reference has the fields of `RoomSpec` instead. */
const OPAQUE = 'RoomDefinition'

export function load(app) {
  app.converter.on(Converter.EVENT_RESOLVE_BEGIN, ({ project }) => {
    for (const reflection of Object.values(project.reflections))
      if (reflection.parent?.name === OPAQUE) project.removeReflection(reflection)
  })
}
