from .images import ImageRefused as ImageRefused
from .images import existing_lock as existing_lock
from .images import image_recipe as image_recipe
from .images import locked as locked
from .images import requirements_of as requirements_of
from .projects import TEMPLATES as TEMPLATES
from .projects import create_project as create_project
from .projects import package_of as package_of
