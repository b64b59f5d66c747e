"""New projects from templates.

    common/, counts/ --placeholders replaced, .tmpl removed--> files of a project
    images.py --> the recipe of its container image

In the templates, the folder `_package_` stands for the app's package, and `dot_` for the dot of a hidden file.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
